"""The mean squared error."""

from __future__ import annotations

from ...graph.graph import Graph, Tensor
from ...graph.ops import MeanSquaredError, MeanSquaredErrorBackward
from .loss import Loss


class MeanSquaredErrorLoss(Loss):
    """(1 / K) sum over k of (output[k] - [k = target])^2, averaged over the batch."""

    kind = "mse"

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", x=scores, target=target)
        graph.add(MeanSquaredError(x=scores, target=target, loss=loss, reduction=self.reduction))
        return loss

    def backward(self, graph: Graph) -> Tensor:
        x, target = graph.kept("loss")["x"], graph.kept("loss")["target"]
        dx = graph.tensor("loss.dx", x.shape)
        graph.add(MeanSquaredErrorBackward(x=x, target=target, dx=dx, reduction=self.reduction))
        return dx
