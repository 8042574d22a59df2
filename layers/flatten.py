"""Flatten: turns pictures into rows."""

from __future__ import annotations

from math import prod

from ..graph.graph import Graph, Tensor
from ..graph.ops import Reshape
from .layer import Layer


class Flatten(Layer):
    """All values of a picture in one row, in the order channel, height, width.

    x: (N, C, H, W), y: (N, C H W).
    """

    kind = "flatten"

    def build(self) -> None:
        self.output_shape = (prod(self.input_shape),)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return graph.add(Reshape(x=x, y=self.output(graph, x)))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        return graph.add(Reshape(x=dy, y=self.input_gradient(graph, dy)))
