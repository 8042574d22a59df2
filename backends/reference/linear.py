"""Dense and convolution: matrix products."""

from __future__ import annotations

import numpy as np

from ...graph import ops
from ...graph.geometry import Window
from ..base import Array
from .kernels import kernel
from .pointwise import activated
from .windows import padded, spread, windows

# Terms that a product adds up in the precision of its factors, before float64 takes over.
SHORT = 256


def _product(left: Array, right: Array) -> Array:
    """left @ right; a long sum in pieces, for BLAS adds one term after the other in float32."""
    length = left.shape[1]
    if length <= 2 * SHORT:
        return left @ right
    total = np.zeros((left.shape[0], right.shape[1]))
    for at in range(0, length, SHORT):
        total += left[:, at : at + SHORT] @ right[at : at + SHORT]
    return np.asarray(total, left.dtype)


@kernel(ops.MatMul, "matmul")
def matmul(
    op: ops.MatMul, a: Array, b: Array, bias: Array | None = None
) -> tuple[Array, Array | None]:
    left = a.T if op.transpose_a else a
    right = b.T if op.transpose_b else b
    c = _product(left, right)
    if bias is not None:
        c = c + bias
    return activated(op, c), None if op.bias_grad is None else left.sum(1, np.float64).astype(
        c.dtype
    )


@kernel(ops.BatchMatMul, "matmul")
def batch_matmul(op: ops.BatchMatMul, a: Array, b: Array) -> Array:
    left = a.swapaxes(1, 2) if op.transpose_a else a
    right = b.swapaxes(1, 2) if op.transpose_b else b
    return np.asarray(left @ right * a.dtype.type(op.factor))


@kernel(ops.BiasAdd, "add")
def bias_add(op: ops.BiasAdd, x: Array, b: Array) -> Array:
    return x + along_channels(b, x)


@kernel(ops.BiasGrad, "sum")
def bias_grad(op: ops.BiasGrad, dy: Array) -> Array:
    return over_channels(dy)


@kernel(ops.Conv2d, "matmul")
def conv2d(op: ops.Conv2d, x: Array, w: Array, bias: Array | None = None) -> Array:
    columns = unfold(x, op.window, op.groups)
    y = (by_group(w, op.groups) @ columns).reshape(op.y.shape)
    if bias is not None:
        y = y + along_channels(bias, y)
    return activated(op, y)


@kernel(ops.Conv2dBackwardData, "matmul")
def conv2d_backward_data(op: ops.Conv2dBackwardData, dy: Array, w: Array) -> Array:
    transposed = by_group(w, op.groups).transpose(0, 2, 1)
    columns = transposed @ pixels(dy, op.groups)
    return fold(columns, op.window, op.dx.shape, dy.shape)


@kernel(ops.Conv2dBackwardFilter, "matmul")
def conv2d_backward_filter(
    op: ops.Conv2dBackwardFilter, x: Array, dy: Array
) -> tuple[Array, Array | None]:
    columns = unfold(x, op.window, op.groups)
    each = pixels(dy, op.groups) @ columns.transpose(0, 1, 3, 2)
    dw = each.sum(0, np.float64).astype(x.dtype).reshape(op.dw.shape)
    return dw, None if op.bias_grad is None else over_channels(dy)


@kernel(ops.Im2col, "sliding_window_view")
def im2col(op: ops.Im2col, x: Array) -> Array:
    seen = windows(padded(x, op.window), op.window)
    return seen.transpose(0, 2, 3, 1, 4, 5).reshape(op.columns.shape)


@kernel(ops.Col2im, "add")
def col2im(op: ops.Col2im, columns: Array) -> Array:
    n, c, h, w = op.x.shape
    output = op.window.output(h, w)
    shares = columns.reshape(n, *output, c, op.window.area).transpose(4, 0, 3, 1, 2)
    return spread(shares, op.window, op.x.shape, output, columns.dtype)


def unfold(x: Array, window: Window, groups: int) -> Array:
    """im2col: x: (N, C, H, W) -> (N, groups, C / groups kh kw, P Q), a copy in matmul's order."""
    seen = windows(padded(x, window), window).transpose(0, 1, 4, 5, 2, 3)
    n, c, kh, kw, rows, columns = seen.shape
    return np.ascontiguousarray(seen).reshape(n, groups, c // groups * kh * kw, rows * columns)


def fold(
    columns: Array, window: Window, picture: tuple[int, ...], output: tuple[int, ...]
) -> Array:
    """col2im, the transpose of ``unfold``: every column's pixels added back where they were seen.

    columns: (N, groups, C / groups kh kw, P Q), picture: (N, C, H, W), output: (N, O, P, Q).
    """
    n, c, rows, across = *picture[:2], *output[2:]
    shares = columns.reshape(n, c, window.area, rows, across).transpose(2, 0, 1, 3, 4)
    return spread(shares, window, picture, (rows, across), columns.dtype)


def by_group(w: Array, groups: int) -> Array:
    """w: (O, C / groups, kh, kw) -> (groups, O / groups, C / groups kh kw)."""
    return w.reshape(groups, w.shape[0] // groups, -1)


def pixels(y: Array, groups: int) -> Array:
    """y: (N, O, P, Q) -> (N, groups, O / groups, P Q)."""
    n, o, rows, columns = y.shape
    return y.reshape(n, groups, o // groups, rows * columns)


def along_channels(b: Array, x: Array) -> Array:
    """b: (C,) so that it broadcasts along axis 1 of x."""
    return b.reshape(-1, *(1,) * (x.ndim - 2))


def over_channels(dy: Array) -> Array:
    """The sum over all axes but 1; dy: (N, C) or (N, C, H, W) -> (C,)."""
    return np.asarray(dy.sum(other_axes(dy), np.float64), dy.dtype)


def other_axes(x: Array) -> tuple[int, ...]:
    """All axes but that of the channels."""
    return (0, *range(2, x.ndim))
