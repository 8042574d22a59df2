"""Windows that slide over pictures: the one place that knows strides, dilation and padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ...graph.geometry import Pair, Window
from ..base import Array


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
