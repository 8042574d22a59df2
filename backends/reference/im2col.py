"""Pictures unrolled to rows of windows, and back."""

from __future__ import annotations

from ...graph.ops import Col2im, Im2col
from ..base import Array
from .kernels import kernel
from .windows import padded, spread, windows


@kernel(Im2col, "sliding_window_view")
def im2col(op: Im2col, x: Array) -> Array:
    seen = windows(padded(x, op.window), op.window)
    return seen.transpose(0, 2, 3, 1, 4, 5).reshape(op.columns.shape)


@kernel(Col2im, "add")
def col2im(op: Col2im, columns: Array) -> Array:
    n, c, h, w = op.x.shape
    output = op.window.output(h, w)
    shares = columns.reshape(n, *output, c, op.window.area).transpose(4, 0, 3, 1, 2)
    return spread(shares, op.window, op.x.shape, output, columns.dtype)
