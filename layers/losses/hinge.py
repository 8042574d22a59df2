"""The multi-class hinge loss."""

from __future__ import annotations

from ...graph.graph import Graph, Tensor
from ...graph.ops import MultiMargin, MultiMarginBackward, Reduction
from .loss import Loss


class HingeLoss(Loss):
    """(1 / K) sum over k != t of max(0, margin - score[t] + score[k])^power, averaged.

    The multi-class margin loss of Weston and Watkins 1999, as PyTorch's MultiMarginLoss.
    """

    kind = "hinge"
    unbounded = True

    def __init__(
        self, *, margin: float = 1.0, power: int = 1, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin, self.power = margin, power

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", x=scores, target=target)
        graph.add(
            MultiMargin(
                x=scores,
                target=target,
                loss=loss,
                margin=self.margin,
                power=self.power,
                reduction=self.reduction,
            )
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        x, target = graph.kept("loss")["x"], graph.kept("loss")["target"]
        dx = graph.tensor("loss.dx", x.shape)
        graph.add(
            MultiMarginBackward(
                x=x,
                target=target,
                dx=dx,
                margin=self.margin,
                power=self.power,
                reduction=self.reduction,
            )
        )
        return dx
