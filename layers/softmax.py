"""Softmax: scores to probabilities."""

from __future__ import annotations

from ..graph.ops import Softmax, SoftmaxBackward
from .dense import flat_size
from .layer import SingleLayer


class SoftmaxLayer(SingleLayer):
    """Probabilities: exp(x) / sum of exp(x) over the classes.

    x, y: (N, C). As the last layer it is computed together with the loss.
    """

    kind = "softmax"
    op = Softmax
    backward_op = SoftmaxBackward
    keeps = ("y",)

    def build(self) -> None:
        flat_size(self.input_shape)
