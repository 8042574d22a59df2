"""Pictures unrolled to rows of windows, by NumPy: a gather with indices worked out beforehand.

A window of a single pixel needs neither: rows of pixels are the layout NHWC under another shape.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...graph.geometry import Window
from ...graph.graph import Shape
from ...graph.ops import Col2im, Im2col
from .bind import Binder, binds
from .memory import Descriptor
from .primitive import NoFastKernel


@binds(Im2col)
def im2col(b: Binder, op: Im2col) -> None:
    n, c, h, w = op.x.shape
    if op.window == Window((1, 1)):
        last = b.want(op.x, Descriptor.of(op.x.shape, "nhwc"))
        return b.alias(op.columns, last.view(Descriptor.of(op.columns.shape)))
    places = gather_indices((c, h, w), op.window)
    x = b.plain(op.x).array((n, c * h * w))
    columns = b.output(op.columns).array((n, places.size))
    # One more than the pixels: the zero that stands for all outside the picture.
    pixels = b.scratch_array((n, c * h * w + 1))

    def gather() -> None:
        pixels[:, :-1], pixels[:, -1] = x, 0.0
        pixels.take(places, axis=1, out=columns, mode="clip")

    return b.host(op, gather, "take", {"window": str(op.window)})


@binds(Col2im)
def col2im(b: Binder, op: Col2im) -> None:
    if op.window != Window((1, 1)):
        raise NoFastKernel
    layout = Descriptor.of(op.x.shape, "nhwc")
    b.alias(op.x, b.plain(op.columns).view(layout))


def gather_indices(picture: Shape, window: Window) -> NDArray[np.intp]:
    """Where each number of a picture's columns comes from, C H W for zero: (P Q C kh kw,)."""
    c, h, w = picture
    top, _, left, _ = window.padding
    rows, across = window.output(h, w)
    (down, right), (dy, dx) = window.stride, window.dilation
    y = np.arange(rows)[:, None] * down + np.arange(window.kernel[0]) * dy - top
    x = np.arange(across)[:, None] * right + np.arange(window.kernel[1]) * dx - left
    # Axes: p, q, c, i, j.
    y, x = y[:, None, None, :, None], x[None, :, None, None, :]
    inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
    place = np.arange(c)[None, None, :, None, None] * (h * w) + y * w + x
    return np.where(inside, place, c * h * w).ravel()
