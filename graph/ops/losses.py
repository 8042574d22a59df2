"""Losses and metrics; a target of -1 masks its sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from ..graph import Op, Tensor
from .formulas import Array, RowFormula, one_hot
from .rules import need, same

Reduction = Literal["mean", "sum"]


def _check_loss(op: Op, x: Tensor, target: Tensor) -> None:
    need(op, len(x.shape) == 2 and target.shape == x.shape[:1], x, target)


@dataclass(frozen=True, kw_only=True)
class RowLoss(Op):
    """loss = mean or sum over n of formula(x[n], target[n]).

    x: (N, K), target: (N,) int32, loss: (1,).
    """

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("loss",)
    x: Tensor
    target: Tensor
    loss: Tensor
    formula: RowFormula
    reduction: Reduction = "mean"

    @property
    def name(self) -> str:
        return self.formula.name

    def check(self) -> None:
        _check_loss(self, self.x, self.target)
        need(self, self.loss.shape == (1,), self.loss)

    def flops(self) -> int:
        return self.formula.flops[0] * self.x.size


@dataclass(frozen=True, kw_only=True)
class RowLossBackward(Op):
    """dx[n] = formula's derivative at x[n], divided by the count of samples if it is a mean.

    dx: (N, K), zero where masked.
    """

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("dx",)
    x: Tensor
    target: Tensor
    dx: Tensor
    formula: RowFormula
    reduction: Reduction = "mean"

    @property
    def name(self) -> str:
        return f"{self.formula.name}Backward"

    def check(self) -> None:
        _check_loss(self, self.x, self.target)
        same(self, self.x, self.dx)

    def flops(self) -> int:
        return self.formula.flops[1] * self.x.size


@dataclass(frozen=True)
class CrossEntropy(RowFormula):
    """-sum over k of q[k] x[k], x the logarithms of probabilities; q: see ``one_hot``."""

    of = "log_p"
    flops = (2, 1)
    cuda = """
        __device__ float wanted(Row r, int k) {
            return (k == r.target ? 1.0f - label_smoothing : 0.0f) + label_smoothing / r.classes;
        }
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) {
                float q = wanted(r, k);
                if (q != 0.0f) loss -= q * r.x[k];
            }
            return loss;
        }
        __device__ float slope(Row r, int k) { return -wanted(r, k); }
    """
    label_smoothing: float = 0.0

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray(-(one_hot(target, x, self.label_smoothing) * x).sum(1))

    def gradient(self, x: Array, target: Array) -> Array:
        # In float64, so that q is rounded only together with its weight.
        return np.asarray(-one_hot(target, np.empty(x.shape), self.label_smoothing))


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
    """dx = p - q, divided by the count of samples if the loss is a mean; log_p, dx: (N, K)."""

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
