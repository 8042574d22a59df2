"""The losses that a config can name."""

from __future__ import annotations

from .classic_losses import (
    HingeLoss,
    OneMinusPLoss,
    PerceptronLoss,
    RbfMapLoss,
    SquaredDistanceLoss,
)
from .graph import Graph, Tensor
from .loss import Loss
from .ops import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Reduction,
    Softmax,
    SoftmaxBackward,
)


class CrossEntropyLoss(Loss):
    """-log softmax(scores)[target], averaged; with label smoothing against the smoothed target.

    The softmax belongs to the loss: a final ``softmax`` layer of the network is this one.
    """

    kind = "cross_entropy"
    softmax = True

    def __init__(self, *, label_smoothing: float = 0.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        self.label_smoothing = label_smoothing

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        p = graph.tensor("loss.p", scores.shape)
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", p=p, target=target)
        graph.add(Softmax(x=scores, y=p))
        graph.add(
            CrossEntropy(
                p=p,
                target=target,
                loss=loss,
                label_smoothing=self.label_smoothing,
                reduction=self.reduction,
            )
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        p, target = graph.kept("loss")["p"], graph.kept("loss")["target"]
        dp = graph.tensor("loss.dp", p.shape)
        dx = graph.tensor("loss.dx", p.shape)
        graph.add(
            CrossEntropyBackward(
                p=p,
                target=target,
                dp=dp,
                label_smoothing=self.label_smoothing,
                reduction=self.reduction,
            )
        )
        graph.add(SoftmaxBackward(y=p, dy=dp, dx=dx))
        return dx


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


LOSSES: dict[str, type[Loss]] = {
    loss.kind: loss
    for loss in (
        CrossEntropyLoss,
        MeanSquaredErrorLoss,
        HingeLoss,
        OneMinusPLoss,
        SquaredDistanceLoss,
        RbfMapLoss,
        PerceptronLoss,
    )
}
