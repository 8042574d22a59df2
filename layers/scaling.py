"""Scale: a fixed factor."""

from __future__ import annotations

from typing import Annotated

from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Scale
from .layer import Layer


class ScaleLayer(Layer):
    """factor * x."""

    kind = "scale"

    def __init__(
        self, name: str, input_shape: Shape, *, factor: Annotated[float, "The factor."]
    ) -> None:
        super().__init__(name, input_shape)
        self.factor = factor

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return graph.add(Scale(x=x, y=self.output(graph, x), factor=self.factor))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        return graph.add(Scale(x=dy, y=self.input_gradient(graph, dy), factor=self.factor))
