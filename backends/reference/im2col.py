"""Pictures unrolled to rows of windows, and back."""

from __future__ import annotations

import numpy as np

from ...graph.ops import Col2im, Im2col
from ..base import Array
from .kernels import kernel
from .windows import cropped, padded, positions, windows


@kernel(Im2col, "sliding_window_view")
def im2col(op: Im2col, x: Array) -> Array:
    seen = windows(padded(x, op.window), op.window)
    return seen.transpose(0, 2, 3, 1, 4, 5).reshape(op.columns.shape)


@kernel(Col2im, "add")
def col2im(op: Col2im, columns: Array) -> Array:
    n, c, h, w = op.x.shape
    rows, across = op.window.output(h, w)
    shares = columns.reshape(n, rows, across, c, op.window.area).transpose(4, 0, 3, 1, 2)
    top, bottom, left, right = op.window.padding
    out = np.zeros((n, c, top + h + bottom, left + w + right), columns.dtype)
    for share, seen in zip(shares, positions(out, op.window, (rows, across)), strict=True):
        seen += share
    return cropped(out, op.window)
