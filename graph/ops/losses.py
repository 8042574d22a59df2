"""Losses and metrics; a target of -1, or of NaN where it is numbers, masks its sample."""

from __future__ import annotations

from typing import Literal

import numpy as np

from ..graph import In, InOut, Op, Out, Tensor
from .formulas import Array, RowFormula, one_hot

Reduction = Literal["mean", "sum"]
Answer = Literal["largest", "threshold", "near"]


def _check_loss(op: Op, x: Tensor, target: Tensor, wide: bool = False) -> None:
    """``wide``: the target is a number for each of x, else a class for each row."""
    op.need(len(x.shape) == 2 and target.shape == (x.shape if wide else x.shape[:1]), x, target)
    op.need(target.dtype == ("float32" if wide else "int32"), target)


class RowLoss(Op):
    """loss = mean or sum over n of formula(x[n], target[n]).

    x: (N, K), target: (N,) int32, or (N, K) float32 if the formula is wide; loss: (1,).
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
        _check_loss(self, self.x, self.target, self.formula.wide)
        self.need(self.loss.shape == (1,), self.loss)

    def flops(self) -> int:
        return self.formula.flops[0] * self.x.size


class RowLossBackward(Op):
    """dx[n] = formula's derivative at x[n], divided by the count of samples if it is a mean.

    dx: (N, K), zero where masked; x and target as in RowLoss.
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
        _check_loss(self, self.x, self.target, self.formula.wide)
        self.same(self.x, self.dx)

    def flops(self) -> int:
        return self.formula.flops[1] * self.x.size


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
        _check_loss(self, self.x, self.target)
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
        _check_loss(self, self.log_p, self.target)
        self.same(self.log_p, self.dx)


class Metrics(Op):
    """sums += (loss summed over samples, sum of their answers, samples), masked samples left out.

    ``answer`` says what a sample's is: "largest", 1 if the first largest of scores[n] is target[n],
    or of numbers the place of their first largest, else 0; "threshold", the share of k with
    (scores[n, k] > threshold) == (target[n, k] > 0.5); "near", the mean over k of (scores[n, k] -
    target[n, k])^2. scores: (N, K), target: (N,) int32 or (N, K) float32, which all but "largest"
    need; loss: (1,) as the loss operation made it, sums: (3,) float64.
    """

    flops_each = 1
    scores: In
    target: In
    loss: In
    sums: InOut
    reduction: Reduction = "mean"
    answer: Answer = "largest"
    threshold: float = 0.5

    @property
    def wide(self) -> bool:
        """Whether a target is a row of numbers."""
        return self.answer != "largest" or self.target.dtype == "float32"

    def check(self) -> None:
        _check_loss(self, self.scores, self.target, self.wide)
        self.need(self.sums.shape == (3,), self.sums)
