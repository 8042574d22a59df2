"""Scale: a fixed factor."""

from __future__ import annotations

from typing import Annotated

from ..graph.graph import Graph, Tensor
from ..graph.ops import Scale
from .layer import Layer


class ScaleLayer(Layer):
    """factor * x."""

    kind = "scale"
    factor: Annotated[float, "The factor."]

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return graph.add(Scale(x=x, y=self.output(graph, x), factor=self.factor))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        return graph.add(Scale(x=dy, y=self.input_gradient(graph, dy), factor=self.factor))
