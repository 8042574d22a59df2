"""Losses and metrics; a target of -1, or a row of them, masks its sample."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..graph import In, InOut, Op, Out, Tensor
from .formulas import Array, RowFormula, one_hot

Reduction = Literal["mean", "sum"]
Answer = Literal["largest", "threshold", "near"]


def _check_loss(op: Op, x: Tensor, target: Tensor, wide: bool = True) -> None:
    """Targets are classes, (N,) int32, or where they may be wide rows of numbers, (N, K) float32.

    Words of a masked sample's target are -1 in either type; as a float that is no number.
    """
    shapes = {"int32": x.shape[:1], **({"float32": x.shape} if wide else {})}
    op.need(len(x.shape) == 2 and target.shape == shapes.get(target.dtype), x, target)


class RowLoss(Op):
    """loss = mean or sum over n of formula(x[n], target[n]).

    x: (N, K), target: (N,) int32 or (N, K) float32, loss: (1,).
    """

    x: In
    target: In
    loss: Out
    formula: RowFormula
    reduction: Reduction = "mean"

    @property
    def name(self) -> str:
        return self.formula.name

    def check(self) -> None:
        _check_loss(self, self.x, self.target)
        self.need(self.loss.shape == (1,), self.loss)

    def flops(self) -> int:
        return self.formula.flops[0] * self.x.size


class RowLossBackward(Op):
    """dx[n] = formula's derivative at x[n], divided by the count of samples if it is a mean.

    dx: (N, K), zero where masked.
    """

    x: In
    target: In
    dx: Out
    formula: RowFormula
    reduction: Reduction = "mean"

    @property
    def name(self) -> str:
        return f"{self.formula.name}Backward"

    def check(self) -> None:
        _check_loss(self, self.x, self.target)
        self.same(self.x, self.dx)

    def flops(self) -> int:
        return self.formula.flops[1] * self.x.size


class CrossEntropy(RowFormula):
    """-sum over k of q[k] x[k], x the logarithms of probabilities; q: see ``one_hot``."""

    of = "log_p"
    flops = (2, 1)
    cuda = """
        __device__ float wanted(Row r, int k) {
            return (1.0f - label_smoothing) * r.right(k) + label_smoothing / r.classes;
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
        return -one_hot(target, np.empty(x.shape), self.label_smoothing)


class SoftmaxCrossEntropy(Op):
    """log_p = log softmax(x); loss as CrossEntropy. x, log_p: (N, K), loss: (1,)."""

    flops_each = 5
    x: In
    target: In
    log_p: Out
    loss: Out
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.x, self.target, wide=False)
        self.same(self.x, self.log_p)


class SoftmaxCrossEntropyBackward(Op):
    """dx = p - q, divided by the count of samples if the loss is a mean; log_p, dx: (N, K)."""

    flops_each = 3
    log_p: In
    target: In
    dx: Out
    label_smoothing: float = 0.0
    reduction: Reduction = "mean"

    def check(self) -> None:
        _check_loss(self, self.log_p, self.target, wide=False)
        self.same(self.log_p, self.dx)


class Metrics(Op):
    """sums += (loss summed over samples, right answers, samples), masked samples left out.

    A right answer, if it is the ``largest``: the first largest of scores[n] is target[n], or the
    first largest of its numbers. ``threshold``: the share of k for which scores[n, k] is above the
    threshold where target[n, k] is above 1/2, and only there. ``near``: no right answers, but the
    mean over k of (scores[n, k] - target[n, k])^2. scores: (N, K), loss: (1,) as the loss operation
    made it, sums: (3,) float64.
    """

    flops_each = 1
    scores: In
    target: In
    loss: In
    sums: InOut
    reduction: Reduction = "mean"
    answer: Answer = "largest"
    threshold: float = 0.0

    def check(self) -> None:
        _check_loss(self, self.scores, self.target)
        wide = self.target.dtype == "float32"
        self.need(wide or self.answer == "largest", self.scores, self.target)
        self.need(self.sums.shape == (3,), self.sums)
