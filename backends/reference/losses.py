"""Losses and metrics. A target of -1 masks its sample; see ops/losses.py for the formulas."""

from __future__ import annotations

import numpy as np

from ...common.errors import DatasetError
from ...graph.ops import (
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
from .pointwise import log_softmax


@kernel(CrossEntropy, "multiply")
def cross_entropy(op: CrossEntropy, log_p: Array, target: Array) -> Array:
    q = wanted(target, log_p, op.label_smoothing)
    return reduced(-(q * log_p).sum(1), target, op.reduction)


@kernel(CrossEntropyBackward, "multiply")
def cross_entropy_backward(op: CrossEntropyBackward, target: Array) -> Array:
    # The targets do not tell in which precision the loss is computed: it is that of the output.
    q = wanted(target, np.empty(op.dlog_p.shape), op.label_smoothing)
    return np.asarray(-q * weight(target, op.reduction))


@kernel(SoftmaxCrossEntropy, "exp")
def softmax_cross_entropy(op: SoftmaxCrossEntropy, x: Array, target: Array) -> tuple[Array, Array]:
    log_p = log_softmax(x)
    q = wanted(target, x, op.label_smoothing)
    return log_p, reduced(-(q * log_p).sum(1), target, op.reduction)


@kernel(SoftmaxCrossEntropyBackward, "exp")
def softmax_cross_entropy_backward(
    op: SoftmaxCrossEntropyBackward, log_p: Array, target: Array
) -> Array:
    q = wanted(target, log_p, op.label_smoothing)
    counted = (target >= 0)[:, None]
    # e^log_p - q, so that a sure answer's difference keeps its digits.
    away = np.where(q > 0.5, np.expm1(log_p) + (1.0 - q), np.exp(log_p) - q)
    return weight(target, op.reduction) * np.where(counted, away, 0.0)


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
