"""Softmax: scores to probabilities."""

from __future__ import annotations

from ..graph.graph import Graph, Tensor
from ..graph.ops import Softmax, SoftmaxBackward
from .dense import flat_size
from .layer import Layer


class SoftmaxLayer(Layer):
    """Probabilities: exp(x) / sum of exp(x) over the classes.

    x, y: (N, C). As the last layer it is computed together with the loss.
    """

    kind = "softmax"

    def build(self) -> None:
        flat_size(self.input_shape)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        y = self.output(graph, x)
        graph.keep(self.name, y=y)
        return graph.add(Softmax(x=x, y=y))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        dx = self.input_gradient(graph, dy)
        return graph.add(SoftmaxBackward(y=graph.kept(self.name)["y"], dy=dy, dx=dx))
