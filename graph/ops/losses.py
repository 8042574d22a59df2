"""Losses and metrics; a target of -1 masks its sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..graph import Op, Tensor
from .rules import need, same

Reduction = Literal["mean", "sum"]


def _check_loss(op: Op, x: Tensor, target: Tensor) -> None:
    need(op, len(x.shape) == 2 and target.shape == x.shape[:1], x, target)


@dataclass(frozen=True, kw_only=True)
class CrossEntropy(Op):
    """loss = mean or sum over n of -sum over k of q[n,k] log_p[n,k].

    q[n,k] = (1 - s) [k = target[n]] + s / K, label smoothing s (Szegedy et al. 2016, section 7).
    log_p: (N, K) logarithms of probabilities, target: (N,) int32, loss: (1,).
    """

    inputs: ClassVar = ("log_p", "target")
    outputs: ClassVar = ("loss",)
    log_p: Tensor
    target: Tensor
    loss: Tensor
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.log_p, self.target)

    def flops(self) -> int:
        return 2 * self.log_p.size


@dataclass(frozen=True, kw_only=True)
class CrossEntropyBackward(Op):
    """dlog_p = -q, divided by the count of samples where the loss is a mean; dlog_p: (N, K)."""

    inputs: ClassVar = ("target",)
    outputs: ClassVar = ("dlog_p",)
    target: Tensor
    dlog_p: Tensor
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.dlog_p, self.target)

    def flops(self) -> int:
        return self.dlog_p.size


@dataclass(frozen=True, kw_only=True)
class SoftmaxCrossEntropy(Op):
    """log_p = log softmax(x); loss as CrossEntropy. x, log_p: (N, K), loss: (1,)."""

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("log_p", "loss")
    x: Tensor
    target: Tensor
    log_p: Tensor
    loss: Tensor
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.x, self.target)
        same(self, self.x, self.log_p)

    def flops(self) -> int:
        return 5 * self.x.size


@dataclass(frozen=True, kw_only=True)
class SoftmaxCrossEntropyBackward(Op):
    """dx = p - q, divided by the count of samples where the loss is a mean; log_p, dx: (N, K)."""

    inputs: ClassVar = ("log_p", "target")
    outputs: ClassVar = ("dx",)
    log_p: Tensor
    target: Tensor
    dx: Tensor
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.log_p, self.target)
        same(self, self.log_p, self.dx)

    def flops(self) -> int:
        return 3 * self.dx.size


@dataclass(frozen=True, kw_only=True)
class MeanSquaredError(Op):
    """loss = mean or sum over n of (1 / K) sum over k of (x[n,k] - [k = target[n]])^2.

    x: (N, K), target: (N,) int32, loss: (1,).
    """

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("loss",)
    x: Tensor
    target: Tensor
    loss: Tensor
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.x, self.target)

    def flops(self) -> int:
        return 3 * self.x.size


@dataclass(frozen=True, kw_only=True)
class MeanSquaredErrorBackward(Op):
    """dx = (2 / K) (x - onehot(target)), divided by the count where the loss is a mean."""

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("dx",)
    x: Tensor
    target: Tensor
    dx: Tensor
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.x, self.target)
        same(self, self.x, self.dx)

    def flops(self) -> int:
        return 2 * self.x.size


@dataclass(frozen=True, kw_only=True)
class Metrics(Op):
    """sums += (loss summed over samples, right answers, samples), masked samples left out.

    A right answer: the first largest of scores[n] is target[n]. scores: (N, K), loss: (1,) as the
    loss operation made it, sums: (3,) float64.
    """

    inputs: ClassVar = ("scores", "target", "loss")
    updates: ClassVar = ("sums",)
    scores: Tensor
    target: Tensor
    loss: Tensor
    sums: Tensor
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.scores, self.target)
        need(self, self.sums.shape == (3,), self.sums)

    def flops(self) -> int:
        return self.scores.size
