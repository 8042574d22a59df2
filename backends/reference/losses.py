"""Losses and metrics. Masked samples count in nothing; the formulas are in layers/losses."""

from __future__ import annotations

import numpy as np

from ...common.errors import DatasetError, ShapeError
from ...graph import ops
from ...graph.graph import Shape
from ..base import Array
from .kernels import kernel
from .pointwise import log_softmax


@kernel(ops.RowLoss, "sum")
def row_loss(op: ops.RowLoss, x: Array, target: Array) -> Array:
    _check_labels(target, x)
    each = _shaped(op, "value", op.formula.value(x, target), x.shape[:1])
    return _reduced(each, target, op.reduction)


@kernel(ops.RowLossBackward, "multiply")
def row_loss_backward(op: ops.RowLossBackward, x: Array, target: Array) -> Array:
    _check_labels(target, x)
    gradient = _shaped(op, "gradient", op.formula.gradient(x, target), x.shape)
    slopes = np.where(ops.masked(target)[:, None], 0.0, gradient)
    factor = op.formula.scale(x.shape[1]) * _weight(target, op.reduction)
    return np.asarray(factor * slopes, x.dtype)


@kernel(ops.SoftmaxCrossEntropy, "exp")
def softmax_cross_entropy(
    op: ops.SoftmaxCrossEntropy, x: Array, target: Array
) -> tuple[Array, Array]:
    _check_labels(target, x)
    log_p = log_softmax(x)
    q = ops.one_hot(target, x, op.label_smoothing)
    return log_p, _reduced(-(q * log_p).sum(1), target, op.reduction)


@kernel(ops.SoftmaxCrossEntropyBackward, "exp")
def softmax_cross_entropy_backward(
    op: ops.SoftmaxCrossEntropyBackward, log_p: Array, target: Array
) -> Array:
    _check_labels(target, log_p)
    q = ops.one_hot(target, log_p, op.label_smoothing)
    counted = (target >= 0)[:, None]
    # e^log_p - q, so that a sure answer's difference keeps its digits.
    away = np.where(q > 0.5, np.expm1(log_p) + (1.0 - q), np.exp(log_p) - q)
    return _weight(target, op.reduction) * np.where(counted, away, 0.0)


@kernel(ops.Metrics, "argmax")
def metrics(op: ops.Metrics, scores: Array, target: Array, loss: Array, sums: Array) -> Array:
    return sums + summed(op, scores, target, loss)


def summed(op: ops.Metrics, scores: Array, target: Array, loss: Array) -> Array:
    """What a batch adds to the sums: (3,) float64."""
    counted = ~ops.masked(target)
    count = int(np.count_nonzero(counted))
    scores, target = scores[counted], target[counted]
    if op.answer == "near":
        answers = ((scores - target.astype(np.float64)) ** 2).mean(1)
    elif op.answer == "threshold":
        answers = ((scores > op.threshold) == (target > 0.5)).mean(1)
    else:
        answers = scores.argmax(1) == (target.argmax(1) if op.wide else target)
    total = float(loss[0]) * (count if op.reduction == "mean" else 1)
    return np.array([total, answers.sum(), count], np.float64)


def _shaped(op: ops.RowLoss | ops.RowLossBackward, name: str, found: Array, shape: Shape) -> Array:
    """What a formula gives: NumPy would spread other shapes, of a plugin's formula, in silence."""
    if np.shape(found) != shape:
        raise ShapeError(
            f"{type(op.formula).__name__}.{name}: returned an array {np.shape(found)}, but {shape} "
            "is needed"
        )
    return found


def _check_labels(target: Array, scores: Array) -> None:
    classes = scores.shape[1]
    if target.ndim == 1 and target.size and int(target.max()) >= classes:
        raise DatasetError(
            f"a sample has the label {int(target.max())}, but the network gives {classes} scores; "
            "labels must be less than the number of classes"
        )


def _weight(target: Array, reduction: str) -> float:
    """1 over the count of samples for a mean, 1 for a sum."""
    return 1.0 / max(int((~ops.masked(target)).sum()), 1) if reduction == "mean" else 1.0


def _reduced(each: Array, target: Array, reduction: str) -> Array:
    """The losses of the samples that count, averaged or summed; each: (N,) -> (1,)."""
    total = np.where(ops.masked(target), 0.0, each).sum(keepdims=True)
    return np.asarray(total * _weight(target, reduction))
