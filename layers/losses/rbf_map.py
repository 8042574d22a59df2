"""The loss of RBF units: penalties, and competition between the classes."""

from __future__ import annotations

from ...graph.graph import Graph, Tensor
from ...graph.ops import MapCriterion, MapCriterionBackward, Reduction
from .loss import Loss


class RbfMapLoss(Loss):
    """penalty[t] + log(e^-j + sum over k of e^-penalty[k]), averaged: LeCun et al. 1998, eq. 9.

    The scores are the negative penalties of an ``rbf`` layer. The second term raises the penalties
    of the other classes, those above j hardly. Without ``competition`` it is left out: eq. 8.
    """

    kind = "rbf_map"
    softmax = True

    def __init__(
        self, *, j: float = 10.0, competition: bool = True, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.rubbish = j if competition else None

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", x=scores, target=target)
        graph.add(
            MapCriterion(
                x=scores,
                target=target,
                loss=loss,
                rubbish=self.rubbish,
                reduction=self.reduction,
            )
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        x, target = graph.kept("loss")["x"], graph.kept("loss")["target"]
        dx = graph.tensor("loss.dx", x.shape)
        graph.add(
            MapCriterionBackward(
                x=x, target=target, dx=dx, rubbish=self.rubbish, reduction=self.reduction
            )
        )
        return dx
