"""Whether a picture in MNIST's format looks like one digit, by its shape alone.

A network for digits answers with a digit whatever it sees, often with a high probability. What is
found here is rare among digits: of the first 10,000 of MNIST, see docs/pictures.md.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .components import bounds, label_regions

SEVERAL = "several digits?"
NO_DIGIT = "not the shape of a digit"
# What is ink, and the least share of it that a part of a digit has.
_INK, _PART = 80, 0.08
# Two parts side by side are digits if both are so tall, beside the taller, have so much of the ink,
# and share so little of the narrower one's columns; one above the other if both have so much ink.
_TALL, _BESIDE, _SHARED, _STACKED = 0.5, 0.2, 0.25, 0.3
# A digit is at most so many times as wide as it is high.
_WIDEST = 1.5
# Of a digit at most two areas are enclosed; smaller ones are gaps between strokes.
_MOST_ENCLOSED, _LEAST_AREA = 2, 3


def doubt(digit: NDArray[np.uint8]) -> str:
    """Why this is hardly one digit, or "". digit: (28, 28) uint8, light on dark."""
    ink = digit >= _INK
    if not ink.any():
        return NO_DIGIT
    rows, columns = bounds(ink)
    if columns.stop - columns.start > _WIDEST * (rows.stop - rows.start) or _has_several(digit):
        return SEVERAL
    labels, count = label_regions(np.pad(~ink, 1, constant_values=True))
    areas = np.bincount(labels.reshape(-1), minlength=count + 1)[1:]
    # One of them is the page.
    if int((areas >= _LEAST_AREA).sum()) - 1 > _MOST_ENCLOSED:
        return NO_DIGIT
    return ""


def _has_several(digit: NDArray[np.uint8]) -> bool:
    """Whether two parts that do not touch are both as large as digits."""
    labels, count = label_regions(digit >= _INK)
    mass = np.bincount(labels.reshape(-1), digit.reshape(-1).astype(float), count + 1)
    mass[0] = 0.0
    shares = mass / mass.sum()
    kept = [number for number in range(1, count + 1) if shares[number] >= _PART]
    parts = [(bounds(labels == number), float(shares[number])) for number in kept]
    return any(_are_two(*parts[i], *parts[j]) for i in range(len(parts)) for j in range(i))


Box = tuple[slice, slice]


def _are_two(one: Box, share: float, other: Box, other_share: float) -> bool:
    least = min(share, other_share)
    heights, widths = (
        [box[axis].stop - box[axis].start for box in (one, other)] for axis in (0, 1)
    )
    if min(heights) >= _TALL * max(heights) and _common(one[1], other[1]) <= _SHARED * min(widths):
        return least >= _BESIDE
    return _common(one[0], other[0]) <= 0 and least >= _STACKED


def _common(one: slice, other: slice) -> int:
    """How many rows or columns two ranges share; less than 0 for those that lie apart."""
    return int(min(one.stop, other.stop) - max(one.start, other.start))
