"""Cross-entropy: -log of the probability of the true class."""

from __future__ import annotations

from ...graph.graph import Graph, Tensor
from ...graph.ops import CrossEntropy, CrossEntropyBackward, Reduction, Softmax, SoftmaxBackward
from .loss import Loss


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
        log_p = graph.tensor("loss.log_p", scores.shape)
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", log_p=log_p, target=target)
        graph.add(Softmax(x=scores, y=log_p, log=True))
        graph.add(
            CrossEntropy(
                log_p=log_p,
                target=target,
                loss=loss,
                label_smoothing=self.label_smoothing,
                reduction=self.reduction,
            )
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        log_p, target = graph.kept("loss")["log_p"], graph.kept("loss")["target"]
        dlog_p = graph.tensor("loss.dlog_p", log_p.shape)
        dx = graph.tensor("loss.dx", log_p.shape)
        graph.add(
            CrossEntropyBackward(
                target=target,
                dlog_p=dlog_p,
                label_smoothing=self.label_smoothing,
                reduction=self.reduction,
            )
        )
        graph.add(SoftmaxBackward(y=log_p, dy=dlog_p, dx=dx, log=True))
        return dx
