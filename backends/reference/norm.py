"""Normalisation and dropout."""

from __future__ import annotations

from math import prod

import numpy as np

from ...common import random
from ...graph import ops
from ..base import Array
from .kernels import kernel
from .linear import along_channels, other_axes
from .pointwise import DERIVATIVES, activated

Forward = ops.Lrn | ops.DivisiveNorm
Backward = ops.LrnBackward | ops.DivisiveNormBackward


def _centred(x: Array, mean: Array) -> Array:
    """x - mean, subtracted in the precision of the mean, kept in that of x."""
    return np.subtract(x, along_channels(mean, x), out=np.empty_like(x), casting="same_kind")


def _affine(x: Array, factor: Array, weight: Array | None, bias: Array | None) -> Array:
    scale = factor if weight is None else factor * weight
    y = x * along_channels(scale.astype(x.dtype), x)
    return y if bias is None else y + along_channels(bias, x)


@kernel(ops.BatchNorm, "mean, multiply")
def batch_norm(
    op: ops.BatchNorm,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array | None,
    running_var: Array | None,
) -> tuple[Array | None, ...]:
    # Sums over a whole batch: in float32 they would lose digits that the formula does not.
    mean = x.mean(other_axes(x), np.float64)
    deviation = _centred(x, mean)
    var = np.square(deviation).mean(other_axes(x), np.float64)
    inverse_std = 1.0 / np.sqrt(var + op.eps)
    y = _affine(deviation, inverse_std, weight, bias)
    count = x.size // x.shape[1]
    m = op.momentum
    statistics: tuple[Array | None, ...] = (mean, inverse_std, var, None, None)
    if running_mean is not None and running_var is not None:
        moved_mean = (1.0 - m) * running_mean + m * mean
        moved_var = (1.0 - m) * running_var + m * var * count / (count - 1)
        statistics = (mean, inverse_std, None, moved_mean, moved_var)
    found = (None if array is None else array.astype(x.dtype) for array in statistics)
    return activated(op, y), *found


@kernel(ops.BatchNormInference, "multiply")
def batch_norm_inference(
    op: ops.BatchNormInference,
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Array,
    running_var: Array,
) -> Array:
    inverse_std = 1.0 / np.sqrt(running_var + op.eps)
    y = _affine(x - along_channels(running_mean, x), inverse_std, weight, bias)
    return activated(op, y)


@kernel(ops.BatchNormInferenceBackward, "multiply")
def batch_norm_inference_backward(
    op: ops.BatchNormInferenceBackward, dy: Array, weight: Array | None, running_var: Array
) -> Array:
    return _affine(dy, 1.0 / np.sqrt(running_var + op.eps), weight, None)


@kernel(ops.BatchNormBackward, "mean, multiply")
def batch_norm_backward(
    op: ops.BatchNormBackward,
    x: Array,
    dy: Array,
    mean: Array,
    inverse_std: Array,
    weight: Array | None,
    bias: Array | None,
    y: Array | None,
) -> tuple[Array, Array, Array]:
    h = (x - along_channels(mean, x)) * along_channels(inverse_std, x)
    g = dy
    if op.activation == "relu" and y is not None:
        g = np.where(y > 0, dy, 0.0)
    elif op.activation is not None:
        # The same sum as forward's, so that both round alike.
        value = _affine(_centred(x, mean), inverse_std, weight, bias)
        if op.activation in ops.FROM_OUTPUT and y is not None:
            value = y
        g = DERIVATIVES[op.activation](value, op.activation_alpha) * dy
    db = g.sum(other_axes(x), np.float64)
    dw = (g * h).sum(other_axes(x), np.float64)
    count = x.size // x.shape[1]
    dw, db, slope, offset = (a.astype(x.dtype) for a in (dw, db, dw / count, db / count))
    centred = g - along_channels(offset, x) - h * along_channels(slope, x)
    return _affine(centred, inverse_std, weight, None), dw, db


def _near_channels(x: Array, size: int) -> Array:
    """The sum over the ``size`` channels around each one, shorter at the ends."""
    reach = size // 2
    total = x.copy()
    for d in range(1, min(reach, x.shape[1] - 1) + 1):
        total[:, d:] += x[:, :-d]
        total[:, :-d] += x[:, d:]
    return total


def _along(x: Array, size: int, axis: int) -> Array:
    turned = np.moveaxis(x, axis, 1)
    return np.moveaxis(_near_channels(turned, size), 1, axis)


def _near(op: Forward | Backward, values: Array) -> tuple[float, Array]:
    """alpha's share of each value near a pixel, and the sum of the values near each."""
    if isinstance(op, ops.Lrn | ops.LrnBackward):
        return op.alpha / op.size, _near_channels(values, op.size)
    return op.alpha / op.size**2, _along(_along(values, op.size, 2), op.size, 3)


@kernel(ops.DivisiveNorm, "power")
@kernel(ops.Lrn, "power")
def lrn(op: Forward, x: Array) -> Array:
    share, squares = _near(op, x * x)
    return x * (op.k + share * squares) ** -op.beta


@kernel(ops.DivisiveNormBackward, "power")
@kernel(ops.LrnBackward, "power")
def lrn_backward(op: Backward, x: Array, y: Array, dy: Array) -> Array:
    share, squares = _near(op, x * x)
    s = op.k + share * squares
    _, reached = _near(op, dy * y / s)
    return dy * s**-op.beta - (2.0 * share * op.beta) * x * reached


@kernel(ops.Dropout, "multiply")
def dropout(op: ops.Dropout, x: Array, step: Array) -> tuple[Array, Array]:
    count = prod(x.shape) // op.alike
    turn, part = divmod(int(step[0]), op.parts)
    block, before = divmod(part * count, 4)
    words = random.words(random.Key(*op.key), turn, block, -(-(before + count) // 4)).reshape(-1)
    kept = words[before : before + count] >= op.threshold
    mask = kept.astype(np.uint8).repeat(op.alike).reshape(x.shape)
    return x * mask * op.scale, mask


@kernel(ops.DropoutBackward, "multiply")
def dropout_backward(op: ops.DropoutBackward, dy: Array, mask: Array) -> Array:
    return dy * mask * op.scale
