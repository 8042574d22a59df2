"""Losses of differences between outputs and targets, each a mean over the K outputs."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ...common.options import Positive
from ...common.targets import Kind
from ...graph.ops.formulas import Array, RowFormula, one_hot
from .loss import Loss

_MEAN = """
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) loss += of_gap(r.x[k] - r.right(k)) / r.classes;
            return loss;
        }
        __device__ float slope(Row r, int k) {
            return slope_of(r.x[k] - r.right(k)) / r.classes;
        }
    """


class MeanSquaredError(RowFormula):
    """(1 / K) sum over k of (x[k] - t[k])^2, half of it with ``half``; t of a class is one-hot."""

    flops = (3, 2)
    cuda = """
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) {
                float gap = r.x[k] - r.right(k);
                loss += gap * gap / r.classes;
            }
            return half ? 0.5f * loss : loss;
        }
        __device__ float slope(Row r, int k) {
            return (half ? 1.0f : 2.0f) / r.classes * (r.x[k] - r.right(k));
        }
    """
    half: bool = False

    def value(self, x: Array, target: Array) -> Array:
        error = x - one_hot(target, x)
        found = (error * error).mean(1)
        return np.asarray(0.5 * found if self.half else found)

    def gradient(self, x: Array, target: Array) -> Array:
        return x - one_hot(target, x)

    def scale(self, classes: int) -> float:
        return (1.0 if self.half else 2.0) / classes


class MeanSquaredErrorLoss(Loss):
    """Mean of the squared differences to the targets; that of a class is one-hot."""

    kind = "mse"
    kinds = ("class", "numbers", "yes_no", "distribution")
    rule = MeanSquaredError
    half: Annotated[bool, "Half of it, so that the gradient is the difference itself."] = False


class MeanAbsoluteError(RowFormula):
    """(1 / K) sum over k of |x[k] - t[k]|; the derivative where they are equal is 0."""

    cuda = (
        """
        __device__ float of_gap(float gap) { return fabsf(gap); }
        __device__ float slope_of(float gap) {
            return gap > 0.0f ? 1.0f : gap < 0.0f ? -1.0f : 0.0f;
        }
        """
        + _MEAN
    )

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray(np.abs(x - one_hot(target, x)).mean(1))

    def gradient(self, x: Array, target: Array) -> Array:
        return np.asarray(np.sign(x - one_hot(target, x)))

    def scale(self, classes: int) -> float:
        return 1.0 / classes


class MeanAbsoluteErrorLoss(Loss):
    """Mean of the absolute differences to the targets."""

    kind = "mae"
    kinds = ("numbers",)
    target: Kind = "numbers"
    rule = MeanAbsoluteError


class Huber(RowFormula):
    """(1 / K) sum over k of e^2 / 2 where |e| <= delta, else delta (|e| - delta / 2); e = x - t."""

    flops = (5, 3)
    cuda = (
        """
        __device__ float of_gap(float gap) {
            float size = fabsf(gap);
            return size <= delta ? 0.5f * gap * gap : delta * (size - 0.5f * delta);
        }
        __device__ float slope_of(float gap) { return fminf(fmaxf(gap, -delta), delta); }
        """
        + _MEAN
    )
    delta: float = 1.0

    def value(self, x: Array, target: Array) -> Array:
        size = np.abs(x - one_hot(target, x))
        far = self.delta * (size - 0.5 * self.delta)
        return np.asarray(np.where(size <= self.delta, 0.5 * size * size, far).mean(1))

    def gradient(self, x: Array, target: Array) -> Array:
        return np.asarray(np.clip(x - one_hot(target, x), -self.delta, self.delta))

    def scale(self, classes: int) -> float:
        return 1.0 / classes


class HuberLoss(Loss):
    """Half the squared difference where it is small, and beyond ``delta`` its slope there.

    Source: Huber 1964, as in PyTorch's HuberLoss.
    """

    kind = "huber"
    kinds = ("numbers",)
    target: Kind = "numbers"
    rule = Huber
    delta: Annotated[Positive, "The difference from which on the loss is linear."] = 1.0
