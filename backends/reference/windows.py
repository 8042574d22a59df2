"""Windows that slide over pictures, the one place that knows strides and padding; pooling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...graph.geometry import Pair, Window
from ...graph.ops import Pool2d, Pool2dBackward
from ..base import Array
from .kernels import kernel


def padded(x: Array, window: Window, fill: float = 0.0) -> Array:
    """x: (N, C, H, W) with the window's padding around it."""
    top, bottom, left, right = window.padding
    if not any(window.padding):
        return x
    n, c, h, w = x.shape
    out = np.full((n, c, top + h + bottom, left + w + right), fill, x.dtype)
    out[:, :, top : top + h, left : left + w] = x
    return out


def cropped(x: Array, window: Window) -> Array:
    """Undo ``padded``."""
    top, bottom, left, right = window.padding
    return x[:, :, top : x.shape[2] - bottom, left : x.shape[3] - right]


def spread(
    shares: Iterable[Array], window: Window, picture: tuple[int, ...], output: Pair, dtype: Any
) -> Array:
    """A picture of zeros to which a share (N, C, P, Q) is added where each window pixel sees it."""
    out = padded(np.zeros(picture, dtype), window)
    for share, seen in zip(shares, positions(out, window, output), strict=True):
        seen += share
    return cropped(out, window)


def windows(x: Array, window: Window) -> Array:
    """The padded x: (N, C, H', W') seen through the window, a view: (N, C, P, Q, kh, kw)."""
    seen = sliding_window_view(x, window.extent, (2, 3))
    (down, right), (rows, columns) = window.stride, window.dilation
    return seen[:, :, ::down, ::right, ::rows, ::columns]


def positions(x: Array, window: Window, output: Pair) -> Iterator[Array]:
    """For every pixel of the window, row by row, what it sees of the padded x: views (N, C, P, Q).

    These views may be added into: what ``windows`` reads, this writes back.
    """
    rows, columns = output
    for i in range(window.kernel[0]):
        for j in range(window.kernel[1]):
            top, left = i * window.dilation[0], j * window.dilation[1]
            down, right = window.stride
            yield x[
                :,
                :,
                top : top + down * (rows - 1) + 1 : down,
                left : left + right * (columns - 1) + 1 : right,
            ]


@kernel(Pool2d, "maximum, add")
def pool2d(op: Pool2d, x: Array) -> Array:
    output = op.y.shape[2], op.y.shape[3]
    if op.kind == "max":
        y = np.full(op.y.shape, -np.inf, x.dtype)
        for seen in positions(padded(x, op.window, -np.inf), op.window, output):
            y = np.maximum(y, seen)
        return y
    total = np.zeros(op.y.shape, x.dtype)
    for seen in positions(padded(x, op.window), op.window, output):
        total += seen
    return total / inside(op.window, op.x.shape, output, x)


@kernel(Pool2dBackward, "add")
def pool2d_backward(op: Pool2dBackward, x: Array | None, y: Array | None, dy: Array) -> Array:
    output = op.dy.shape[2], op.dy.shape[3]
    if op.kind == "avg":
        share = dy / inside(op.window, op.dx.shape, output, dy)
        shares = iter([share] * op.window.area)
    else:
        assert x is not None
        assert y is not None
        shares = _of_maxima(positions(padded(x, op.window, -np.inf), op.window, output), y, dy)
    return spread(shares, op.window, op.dx.shape, output, dy.dtype)


def _of_maxima(seen: Iterable[Array], y: Array, dy: Array) -> Iterator[Array]:
    """dy where the window's pixel is its first that equals the maximum: they come row by row."""
    free = np.ones(dy.shape, np.bool_)
    for value in seen:
        first = free & (value == y)
        yield np.where(first, dy, 0.0)
        free &= ~first


def inside(window: Window, picture: tuple[int, ...], output: tuple[int, int], like: Array) -> Array:
    """How many pixels of each window lie inside the picture: (1, 1, P, Q)."""
    ones = padded(np.ones((1, 1, *picture[2:]), like.dtype), window)
    count = np.zeros((1, 1, *output), like.dtype)
    for seen in positions(ones, window, output):
        count += seen
    return count
