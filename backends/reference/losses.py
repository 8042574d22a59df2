"""Losses and metrics. A target of -1 masks its sample; see ops/losses.py for the formulas."""

from __future__ import annotations

import numpy as np

from ....common.errors import DatasetError
from ...ops import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Metrics,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from ..base import Array
from .kernels import kernel


@kernel(CrossEntropy, "log")
def cross_entropy(op: CrossEntropy, p: Array, target: Array) -> Array:
    q = wanted(target, p, op.label_smoothing)
    return reduced(-(q * np.log(above_zero(p))).sum(1), target, op.reduction)


@kernel(CrossEntropyBackward, "divide")
def cross_entropy_backward(op: CrossEntropyBackward, p: Array, target: Array) -> Array:
    q = wanted(target, p, op.label_smoothing)
    return np.asarray(-q / above_zero(p) * weight(target, op.reduction))


@kernel(SoftmaxCrossEntropy, "exp")
def softmax_cross_entropy(op: SoftmaxCrossEntropy, x: Array, target: Array) -> tuple[Array, Array]:
    shifted = x - x.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    q = wanted(target, x, op.label_smoothing)
    return log_p, reduced(-(q * log_p).sum(1), target, op.reduction)


@kernel(SoftmaxCrossEntropyBackward, "exp")
def softmax_cross_entropy_backward(
    op: SoftmaxCrossEntropyBackward, log_p: Array, target: Array
) -> Array:
    q = wanted(target, log_p, op.label_smoothing)
    counted = (target >= 0)[:, None]
    return weight(target, op.reduction) * np.where(counted, np.exp(log_p) - q, 0.0)


@kernel(MeanSquaredError, "square")
def mean_squared_error(op: MeanSquaredError, x: Array, target: Array) -> Array:
    error = x - wanted(target, x)
    return reduced((error * error).mean(1), target, op.reduction)


@kernel(MeanSquaredErrorBackward, "subtract")
def mean_squared_error_backward(op: MeanSquaredErrorBackward, x: Array, target: Array) -> Array:
    counted = (target >= 0)[:, None]
    factor = 2.0 / x.shape[1] * weight(target, op.reduction)
    return np.asarray(factor * np.where(counted, x - wanted(target, x), 0.0))


@kernel(Metrics, "argmax")
def metrics(op: Metrics, scores: Array, target: Array, loss: Array, sums: Array) -> Array:
    count = int((target >= 0).sum())
    right = int((scores.argmax(1) == target).sum())
    total = float(loss[0]) * (count if op.reduction == "mean" else 1)
    return np.asarray(sums + np.array([total, right, count]))


def wanted(target: Array, scores: Array, label_smoothing: float = 0.0) -> Array:
    """q: (N, K), the probabilities that the target asks for; zeros where it is masked."""
    classes = scores.shape[1]
    if target.size and int(target.max()) >= classes:
        raise DatasetError(
            f"a sample has the label {int(target.max())}, but the network gives {classes} scores; "
            "the labels must lie below the number of classes"
        )
    q = np.full(scores.shape, label_smoothing / classes, scores.dtype)
    samples = np.arange(len(target))
    q[samples, target] += 1.0 - label_smoothing
    q[target < 0] = 0.0
    return q


def weight(target: Array, reduction: str) -> float:
    """1 over the count of samples for a mean, 1 for a sum."""
    return 1.0 / max(int((target >= 0).sum()), 1) if reduction == "mean" else 1.0


def reduced(each: Array, target: Array, reduction: str) -> Array:
    """The losses of the samples that count, averaged or summed; each: (N,) -> (1,)."""
    total = np.where(target >= 0, each, 0.0).sum(keepdims=True)
    return np.asarray(total * weight(target, reduction))


def above_zero(p: Array) -> Array:
    """p, but no smaller than the smallest normal number, whose logarithm is finite."""
    return np.asarray(np.maximum(p, np.finfo(p.dtype).tiny))
