"""Losses: the last operations of forward and the first of backward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ..common.errors import ShapeError
from .graph import Graph, Shape, Tensor
from .ops import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Metrics,
    Reduction,
    Softmax,
    SoftmaxBackward,
)


class Loss(ABC):
    """Adds loss: (1,), metric sums: (3,) and the gradient of the network's output to a graph."""

    kind: ClassVar[str]

    def __init__(self, *, reduction: Reduction = "mean") -> None:
        self.reduction = reduction

    def check(self, output_shape: Shape, classes: int) -> None:
        """Raise ShapeError where the network's output is not one score a class."""
        if output_shape != (classes,):
            raise ShapeError(
                f"the last layer gives {output_shape}, the data has {classes} classes; "
                f"end the stack with 'dense: {{units: {classes}}}'"
            )

    @abstractmethod
    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        """Add loss(scores, target); scores: (N, K), target: (N,). Returns loss: (1,)."""

    @abstractmethod
    def backward(self, graph: Graph) -> Tensor:
        """Add the gradient of the loss with respect to the scores, and return it: (N, K)."""

    def metrics(self, graph: Graph, scores: Tensor, target: Tensor, loss: Tensor) -> Tensor:
        """Add the running sums (loss, right answers, samples); returns sums: (3,) float64."""
        sums = graph.tensor(f"{graph.name}.sums", (3,), "float64", "state")
        graph.add(
            Metrics(scores=scores, target=target, loss=loss, sums=sums, reduction=self.reduction)
        )
        return sums


class CrossEntropyLoss(Loss):
    """-log softmax(scores)[target], averaged; with label smoothing against the smoothed target.

    The softmax belongs to the loss: a final ``softmax`` layer of the network is this one.
    """

    kind = "cross_entropy"

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
    loss.kind: loss for loss in (CrossEntropyLoss, MeanSquaredErrorLoss)
}
