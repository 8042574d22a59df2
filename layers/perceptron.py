"""Heaviside: the threshold unit of the perceptron."""

from __future__ import annotations

from ..common.errors import ShapeError
from ..graph.graph import Graph, Tensor
from ..graph.ops import Heaviside
from .layer import SingleLayer
from .losses.perceptron import PERCEPTRON_ERROR


class HeavisideLayer(SingleLayer):
    """1 where x is positive, else 0; it has no gradient, so it needs the loss perceptron.

    Source: McCulloch and Pitts 1943, Rosenblatt 1958.
    Its derivative is 0 wherever it exists, so only the perceptron rule, which needs none, can train
    the layer before it: the error of that rule reaches the weights unchanged.
    """

    kind = "heaviside"
    op = Heaviside
    differentiable = False

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        if dy.name != PERCEPTRON_ERROR:
            raise ShapeError(
                f"layer '{self.name}' (heaviside) has no gradient; use it as the last layer, with "
                "'loss: perceptron'"
            )
        return dy
