"""Pooling, window pixel by window pixel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...graph.geometry import Window
from ...graph.ops import Pool2d, Pool2dBackward
from ..base import Array
from .kernels import kernel
from .windows import padded, positions, spread


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
