"""Softmax: scores to probabilities."""

from __future__ import annotations

from ..common.errors import ShapeError
from ..graph.graph import Graph, Shape, Tensor
from ..graph.ops import Softmax, SoftmaxBackward
from .layer import Layer


class SoftmaxLayer(Layer):
    """Probabilities: exp(x) / sum of exp(x) over the classes.

    x, y: (N, C). As the last layer it is computed together with the loss.
    """

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
