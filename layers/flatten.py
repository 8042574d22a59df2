"""Flatten: turns pictures into rows."""

from __future__ import annotations

from math import prod

from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Reshape
from .layer import Layer


class Flatten(Layer):
    """All values of a picture in one row, in the order channel, height, width.

    x: (N, C, H, W), y: (N, C H W).
    """

    kind = "flatten"

    def __init__(self, name: str, input_shape: Shape) -> None:
        super().__init__(name, input_shape, (prod(input_shape),))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.add(Reshape(x=x, y=y))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx = self.input_gradient(graph, dy)
        graph.add(Reshape(x=dy, y=dx))
        return dx
