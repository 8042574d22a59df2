"""Products of 8-bit integers by NumPy: sums in float64, where they are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph.ops import Quantization, Quantize, QuantizedConv2d, QuantizedMatMul
from ..base import Array
from .kernels import kernel
from .linear import along_channels, by_group, unfold

LARGEST = 127
_Product = QuantizedConv2d | QuantizedMatMul


def as_integers(x: Array, to: Quantization) -> Array:
    """x / scale, rounded, within the bounds, in the type of x."""
    return np.asarray(np.clip(np.rint(x / np.asarray(to.scale, x.dtype)), *to.bounds))


def quantized_weights(w: Array) -> tuple[Array, Array]:
    """(integers of the shape of w, scale of each output): integers times scale is about w.

    w: (outputs, ...); scales: (outputs,) float64.
    """
    rows = w.reshape(len(w), -1).astype(np.float64)
    scales = np.abs(rows).max(1) / LARGEST
    scales[scales == 0] = 1.0
    return np.rint(rows / scales[:, None]).reshape(w.shape), scales


def scales_and_sums(
    op: _Product,
    scales: Array,
    bias: Array | None,
    weight: Array | None,
    shift: Array | None,
    mean: Array | None,
    var: Array | None,
) -> tuple[Array, Array]:
    """(s, b) of the operation's formula, (outputs,) float64; ``scales``: of the weights."""
    b = np.zeros(len(scales)) if bias is None else bias.astype(np.float64)
    if mean is None or var is None:
        return scales, b
    a = 1.0 / np.sqrt(var.astype(np.float64) + op.eps)
    a = a if weight is None else a * weight
    b = (b - mean) * a
    return scales * a, b if shift is None else b + shift


def _finished(op: _Product, total: Array, s: Array, b: Array, dtype: Any) -> Array:
    y = total * along_channels(op.given.scale * s, total) + along_channels(b, total)
    y = np.maximum(y, 0.0) if op.relu else y
    y = y.astype(dtype)
    return y if op.to is None else as_integers(y, op.to)


@kernel(Quantize, "rint")
def quantize(op: Quantize, x: Array) -> Array:
    return as_integers(x, op.to)


@kernel(QuantizedConv2d, "matmul")
def quantized_conv2d(op: QuantizedConv2d, x: Array, w: Array, *given: Array | None) -> Array:
    integers, scales = quantized_weights(w)
    columns = unfold(x.astype(np.float64), op.window, op.groups)
    total = (by_group(integers, op.groups) @ columns).reshape(op.y.shape)
    return _finished(op, total, *scales_and_sums(op, scales, *given), x.dtype)


@kernel(QuantizedMatMul, "matmul")
def quantized_matmul(op: QuantizedMatMul, x: Array, w: Array, *given: Array | None) -> Array:
    integers, scales = quantized_weights(w)
    total = x.astype(np.float64) @ integers.T
    return _finished(op, total, *scales_and_sums(op, scales, *given), x.dtype)
