"""Losses of the older literature; see ops/classic_losses.py for the formulas."""

from __future__ import annotations

import numpy as np

from ...graph.ops import (
    ExpectedCost,
    ExpectedCostBackward,
    MapCriterion,
    MapCriterionBackward,
    MultiMargin,
    MultiMarginBackward,
    PerceptronError,
    PerceptronErrorBackward,
)
from ..base import Array
from .kernels import kernel
from .losses import reduced, wanted, weight


@kernel(MultiMargin, "maximum")
def multi_margin(op: MultiMargin, x: Array, target: Array) -> Array:
    each = (_margins(op, x, target) ** op.power).mean(1)
    return reduced(each, target, op.reduction)


@kernel(MultiMarginBackward, "maximum")
def multi_margin_backward(op: MultiMarginBackward, x: Array, target: Array) -> Array:
    m = _margins(op, x, target)
    slope = np.where(m > 0, op.power * m ** (op.power - 1), 0.0)
    dx = slope - wanted(target, x) * slope.sum(1, keepdims=True)
    return _counted(dx / x.shape[1], target, op.reduction)


@kernel(ExpectedCost, "multiply")
def expected_cost(op: ExpectedCost, x: Array, target: Array) -> Array:
    if op.kind == "one_minus_p":
        each = 1.0 - (wanted(target, x) * x).sum(1)
    else:
        each = (x * _distances(x, target)).sum(1)
    return reduced(each, target, op.reduction)


@kernel(ExpectedCostBackward, "subtract")
def expected_cost_backward(op: ExpectedCostBackward, x: Array, target: Array) -> Array:
    dx = -wanted(target, x) if op.kind == "one_minus_p" else _distances(x, target)
    return _counted(dx, target, op.reduction)


@kernel(MapCriterion, "exp")
def map_criterion(op: MapCriterion, x: Array, target: Array) -> Array:
    each = -(wanted(target, x) * x).sum(1)
    if op.rubbish is not None:
        each = each + _log_sum(op.rubbish, x)[:, 0]
    return reduced(each, target, op.reduction)


@kernel(MapCriterionBackward, "exp")
def map_criterion_backward(op: MapCriterionBackward, x: Array, target: Array) -> Array:
    dx = -wanted(target, x)
    if op.rubbish is not None:
        dx = dx + np.exp(x - _log_sum(op.rubbish, x))
    return _counted(dx, target, op.reduction)


@kernel(PerceptronError, "abs")
def perceptron_error(op: PerceptronError, x: Array, target: Array) -> Array:
    return reduced(np.abs(x - wanted(target, x)).sum(1), target, op.reduction)


@kernel(PerceptronErrorBackward, "subtract")
def perceptron_error_backward(op: PerceptronErrorBackward, x: Array, target: Array) -> Array:
    return _counted(x - wanted(target, x), target, op.reduction)


def _margins(op: MultiMargin | MultiMarginBackward, x: Array, target: Array) -> Array:
    """max(0, margin - x[n,t] + x[n,k]), 0 for the target itself: (N, K)."""
    right = wanted(target, x)
    own = (right * x).sum(1, keepdims=True)
    return np.where(right > 0, 0.0, np.maximum(op.margin - own + x, 0.0)).astype(x.dtype)


def _distances(x: Array, target: Array) -> Array:
    """(k - t)^2: (N, K)."""
    wanted(target, x)
    away = np.arange(x.shape[1]) - target[:, None]
    return np.asarray(away * away, x.dtype)


def _log_sum(rubbish: float, x: Array) -> Array:
    """log(e^-j + sum over k of e^x[n,k]), less the largest exponent, so that nothing overflows."""
    top = np.maximum(x.max(1, keepdims=True), -rubbish)
    total = np.exp(-rubbish - top) + np.exp(x - top).sum(1, keepdims=True)
    return np.asarray(top + np.log(total))


def _counted(dx: Array, target: Array, reduction: str) -> Array:
    return np.asarray(weight(target, reduction) * np.where((target >= 0)[:, None], dx, 0.0))
