"""Convolutions whose results are known, because their operands are products of factors.

The value at (n, c, h, w) is the product of a number of c, one of h and one of w. The sums of a
convolution along its axes are therefore independent, and the result is their product. The numbers
are 1, 2 and 3: operands are exact in bfloat16, and sums in float32 up to 2^24. Those of ``fine``
have other signs and more digits: what TF32 or a transform loses of them shows in the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..graph.geometry import Window
from ..graph.graph import Shape

Numbers = NDArray[np.floating[Any]]
# Of an operand's axes, given its sizes and name.
Factors = Callable[[Sequence[int], str], list[Numbers]]
Kind = Literal["forward", "data", "filter"]


def numbers(sizes: Sequence[int], operand: str = "") -> list[Numbers]:
    """For each axis, a number for each of its positions."""
    return [(1 + np.arange(size) % 3).astype(np.float32) for size in sizes]


def fine(sizes: Sequence[int], operand: str) -> list[Numbers]:
    """The same as odd numbers of either sign, in float64; a product has at most 24 bits."""
    half = 2 ** (24 // len(sizes) - 1)
    found: list[Numbers] = []
    for size in sizes:
        at = np.arange(1, size + 1, dtype=np.uint32) + np.uint32(ord(operand))
        mixed = at * np.uint32(0x9E3779B1)
        mixed = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA77)
        found.append(((half + (mixed >> 16) % half) | 1) * np.where(mixed >> 31, 1.0, -1.0))
    return found


def signs(pictures: int) -> Numbers:
    """Of each picture: alternating, so that sums stay small, but for the first few."""
    at = np.arange(pictures)
    return np.where((at % 2 == 1) & (at > math.isqrt(pictures)), -1.0, 1.0)


def squares(sizes: Sequence[int], operand: str) -> list[Numbers]:
    """Those of ``fine``."""
    return [each**2 for each in fine(sizes, operand)]


def product(factors: Sequence[Numbers]) -> Numbers:
    return reduce(np.multiply.outer, factors)


def result(
    kind: Kind,
    x: Shape,
    w: Shape,
    y: Shape,
    window: Window,
    factors: Factors = numbers,
    pictures: float | None = None,
) -> tuple[Numbers, Numbers, Numbers]:
    """The factors of a convolution's result, or of a gradient: channels, rows, columns.

    x: (N, C, H, W), w: (O, C / groups, kh, kw), y: (N, O, P, Q), all pictures alike. Channels are
    (O,) of y, (C,) of dx, (O, C / groups) of dw. ``factors``: those of the operands; ``pictures``:
    the sum of what those of x or y are multiplied by, N by default.
    """
    (of_x, *x_axes), (of_y, *y_axes), (out, inner, *w_axes) = map(factors, (x[1:], y[1:], w), "xyw")
    groups = x[1] // w[1]
    by_group = of_x.reshape(groups, -1)
    if kind == "forward":
        channels = out * np.repeat((by_group * inner).sum(1), w[0] // groups)
    elif kind == "data":
        channels = np.multiply.outer((of_y * out).reshape(groups, -1).sum(1), inner).ravel()
    else:
        alike = x[0] if pictures is None else pictures
        channels = alike * of_y[:, None] * np.repeat(by_group, w[0] // groups, 0)
    ends = zip(x_axes, w_axes, y_axes, strict=True)
    rows, columns = (_line(kind, *line, window, axis) for axis, line in enumerate(ends))
    return channels.astype(out.dtype), rows, columns


def _line(kind: Kind, x: Numbers, w: Numbers, y: Numbers, window: Window, axis: int) -> Numbers:
    """The same along one axis.

    Without matrix products: NumPy reads the processor's flags after BLAS, and has sometimes warned
    of an invalid value for these few finite numbers.
    """
    taps = window.dilation[axis] * np.arange(len(w))[:, None]
    at = taps + window.stride[axis] * np.arange(len(y)) - window.padding[2 * axis]
    inside = (at >= 0) & (at < len(x))
    at = at.clip(0, len(x) - 1)
    if kind == "forward":
        return np.asarray((w[:, None] * inside * x[at]).sum(0), w.dtype)
    if kind == "filter":
        return np.asarray((inside * x[at] * y).sum(1), w.dtype)
    found = np.zeros(len(x), w.dtype)
    np.add.at(found, at, inside * np.multiply.outer(w, y))
    return found
