"""Removes the lines of ruled or squared paper from a page of ink.

A line of the paper runs across the whole page, straight, and at nearly the same darkness: along it
even the faintest fifth is darker than the paper. No stroke of a digit does that. Where such a line
is, the page is replaced by what lies on either side of it, so that a stroke that crosses a line
stays whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Plane = NDArray[np.float32]

# The paper may be turned by so much, in units of width per length (about 10 degrees). The slope is
# sought on the page scaled down to these sizes, in so many steps.
_STEEPEST = 0.18
_SOUGHT = ((160, 31), (400, 9), (800, 9))
# What is left must be so long, as a share of the page: else the line was the digit.
_LEAST_REST = 0.15
# A line is cut into so many parts, of which so many may be hidden or faint; so many must be on the
# page.
_PARTS, _HIDDEN, _KNOWN = 20, 0.2, 0.75
# A line is darker than the paper by this share of full ink, and this multiple of the noise of a
# part of it.
_FAINTEST, _NOISES = 0.035, 4.0
# Wider bands than this share of the page are no lines.
_WIDEST = 0.035


def without_lines(level: Plane, noise: float) -> tuple[Plane, bool]:
    """The ink without lines that cross the page, and whether there were any.

    level: (H, W), 0 on paper; ``noise``: its standard deviation there.
    """
    cleaned = _without_rows(level, noise)
    turned = np.ascontiguousarray(cleaned.T)
    upright = _without_rows(turned, noise)
    if upright is not turned:
        cleaned = np.ascontiguousarray(upright.T)
    if cleaned is level or not _has_ink(cleaned, level):
        return level, False
    return cleaned, True


def _has_ink(cleaned: Plane, level: Plane) -> bool:
    """Whether a stroke of some length is left."""
    strong = cleaned > 0.4 * float(level.max())
    longest = max(np.count_nonzero(strong.any(axis)) for axis in (0, 1))
    return bool(longest >= _LEAST_REST * max(level.shape))


def _without_rows(level: Plane, noise: float) -> Plane:
    """The ink without lines that are nearly horizontal; the same array if there are none."""
    height, width = level.shape
    if min(level.shape) < 40:
        return level
    slope = _slope(level)
    # Row r of the sheared page is the line y = r + slope (x - width / 2).
    shift = np.rint(slope * (np.arange(width) - width / 2)).astype(np.intp)
    reach = int(np.abs(shift).max()) + 1
    padded = np.pad(level, ((reach, reach), (0, 0)))
    rows = np.arange(height + 2 * reach)[:, None] + shift
    inside = (rows >= reach) & (rows < height + reach)
    rows = np.clip(rows, 0, len(padded) - 1)
    columns = np.broadcast_to(np.arange(width), rows.shape)
    sheared = padded[rows, columns]
    bands = _bands(sheared, inside, noise)
    if not bands:
        return level
    for first, last in bands:
        _bridge(sheared, first, last)
    # Back to the places that the values came from.
    padded[rows[inside], columns[inside]] = sheared[inside]
    return np.ascontiguousarray(padded[reach : reach + height])


def _slope(level: Plane) -> float:
    """The slope along which the page looks most like lines."""
    best, gap = 0.0, _STEEPEST
    for longest, steps in _SOUGHT:
        slopes = np.linspace(best - gap, best + gap, steps)
        best = float(slopes[np.argmax(_sharpness(level, longest, slopes))])
        gap = float(slopes[1] - slopes[0])
    return best


def _sharpness(level: Plane, longest: int, slopes: NDArray[np.float64]) -> list[float]:
    """How much the means along lines of each slope differ from one line to the next."""
    step = max(1, max(level.shape) // longest)
    small = level[: level.shape[0] // step * step, : level.shape[1] // step * step]
    small = small.reshape(small.shape[0] // step, step, -1, step).mean((1, 3))
    height, width = small.shape
    # Strokes are darker than lines; lines shall decide.
    weights = np.clip(small, 0.0, 0.5)
    across = np.arange(width) - width / 2
    found = []
    for slope in slopes:
        shift = np.rint(slope * across).astype(np.intp)
        reach = int(np.abs(shift).max())
        rows = np.arange(reach, height - reach)[:, None] + shift
        if len(rows) < 2:
            found.append(0.0)
            continue
        profile = weights[rows, np.arange(width)].mean(1)
        found.append(float((np.diff(profile) ** 2).sum()) / len(rows))
    return found


def _bands(sheared: Plane, inside: NDArray[np.bool_], noise: float) -> list[tuple[int, int]]:
    """The first and last rows of the lines of a page on which they are horizontal."""
    height, width = sheared.shape
    edges = np.linspace(0, width, _PARTS + 1).astype(np.intp)
    known = np.add.reduceat(inside, edges[:-1], axis=1)
    total = np.add.reduceat(np.where(inside, sheared, 0.0), edges[:-1], axis=1)
    means = np.where(known > 0, total / np.maximum(known, 1), -np.inf)
    # A line that climbs by whole pixels is in one row of a part and in the next row of another.
    around = np.pad(means, ((1, 1), (0, 0)), constant_values=-np.inf)
    means = np.maximum(np.maximum(around[:-2], means), around[2:])
    means[np.isneginf(means)] = np.nan
    some = (known > 0).sum(1) >= _KNOWN * _PARTS
    faint = np.zeros(height)
    with np.errstate(all="ignore"):
        faint[some] = np.nanquantile(means[some], _HIDDEN, axis=1)
    least = max(_FAINTEST, _NOISES * noise / np.sqrt(width / _PARTS))
    dark = faint > least
    changes = np.flatnonzero(np.diff(np.pad(dark.astype(np.int8), 1)))
    bands = []
    for first, stop in zip(changes[0::2], changes[1::2], strict=True):
        # Without the rows that the neighbours have added on either side.
        if stop - first - 2 <= max(_WIDEST * max(height, width), 4):
            bands.append((int(first) + 1, int(stop) - 2))
    return bands


def _bridge(page: Plane, first: int, last: int) -> None:
    """Replace the rows of a line by what joins the rows on either side of it."""
    above, below = max(first - 3, 0), min(last + 3, len(page) - 1)
    share = np.linspace(0.0, 1.0, below - above + 1, dtype=np.float32)[1:-1, None]
    # A little further away, where the line itself leaves no trace.
    over = page[max(above - 2, 0) : above + 1].mean(0)
    under = page[below : below + 3].mean(0)
    joined = (1.0 - share) * over + share * under
    rows = page[above + 1 : below]
    np.minimum(rows, joined, out=rows)
