"""Losses that are an expected cost: linear in the probabilities."""

from __future__ import annotations

from ...graph.graph import Graph, Tensor
from ...graph.ops import CostKind, ExpectedCost, ExpectedCostBackward, Softmax, SoftmaxBackward
from .loss import Loss


class ExpectedCostLoss(Loss):
    """An error that is linear in the probabilities p = softmax(scores), averaged over the batch.

    The softmax belongs to the loss: a final ``softmax`` layer of the network is this one.
    """

    softmax = True
    cost: CostKind

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        p = graph.tensor("loss.p", scores.shape)
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", p=p, target=target)
        graph.add(Softmax(x=scores, y=p))
        graph.add(
            ExpectedCost(x=p, target=target, loss=loss, kind=self.cost, reduction=self.reduction)
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        p, target = graph.kept("loss")["p"], graph.kept("loss")["target"]
        dp = graph.tensor("loss.dp", p.shape)
        dx = graph.tensor("loss.dx", p.shape)
        graph.add(
            ExpectedCostBackward(
                x=p, target=target, dx=dp, kind=self.cost, reduction=self.reduction
            )
        )
        graph.add(SoftmaxBackward(y=p, dy=dp, dx=dx))
        return dx


class OneMinusPLoss(ExpectedCostLoss):
    """1 - p[target]."""

    kind = "one_minus_p"
    cost = "one_minus_p"


class SquaredDistanceLoss(ExpectedCostLoss):
    """sum over k of p[k] (k - target)^2: the classes are numbers, near misses cost less."""

    kind = "squared_distance"
    cost = "squared_distance"
