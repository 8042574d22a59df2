"""Softmax: scores to probabilities."""

from __future__ import annotations

from ..common.errors import ShapeError
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Softmax, SoftmaxBackward
from .layer import Layer


class SoftmaxLayer(Layer):
    """y[n,c] = e^x[n,c] / sum over k of e^x[n,k]; x, y: (N, C)."""

    kind = "softmax"

    def __init__(self, name: str, input_shape: Shape) -> None:
        if len(input_shape) != 1:
            raise ShapeError(f"expects a flat input, got {input_shape}; insert 'flatten' before it")
        super().__init__(name, input_shape, input_shape)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, x=x, y=y)
        graph.add(Softmax(x=x, y=y))
        return y

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx = self.input_gradient(graph, dy)
        graph.add(SoftmaxBackward(y=graph.kept(self.name)["y"], dy=dy, dx=dx))
        return dx
