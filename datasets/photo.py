"""Separates ink from paper by a local threshold, also on a photograph in uneven light.

Paper is what can be reached from the border of the picture in small steps of brightness: shading
changes slowly, the edge of a stroke does not. The brightness of the paper under the ink is
interpolated. What then differs from the paper by more than the noise is ink.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass
from .components import bounds, label_regions
from .ruling import without_lines

Plane = NDArray[np.float32]
Mask = NDArray[np.bool_]

# Cells along the longer side of the picture when the paper is located, and bounds of the step of
# brightness (of 255) from one cell of paper to the next, as multiples of the usual step; the first
# sufficient one is used.
_CELLS = 64
_AROUND = 3
_LEAST_STEP, _MOST_STEP = 5.0, 12.0
_STEPS = (3.0, 4.5, 6.0)
_MOST_OF_PAGE = 0.6
# A sheet covers at least these shares of the picture and of the rectangle around it; its rim, which
# is never quite straight, is a share of its sides.
_SHEET_OF_PAGE, _SHEET_OF_BOX = 0.15, 0.68
_RIM = 0.09
# A stroke differs from its paper by at least this (of 255), and by this multiple of the noise.
_LEAST_CONTRAST = 16.0
_NOISES = 6.0


@dataclass(frozen=True)
class Ink:
    """level: (H, W), 0 on paper, 1 in the core of a stroke; smooth: the same with less noise.

    ``noise`` is the standard deviation of ``smooth`` on paper, ``inverted``: the ink is darker than
    the paper, ``ruled``: the paper had lines, which are removed.
    """

    level: Plane
    smooth: Plane
    noise: float
    inverted: bool
    ruled: bool = False


def find_ink(grey: NDArray[np.uint8], invert: bool | None = None) -> Ink | None:
    """Find the ink on an unevenly lit page. grey: (H, W).

    ``invert`` True: darker than the paper, False: lighter, None: whichever differs more from the
    paper at the border. Returns None if nothing stands out.
    """
    bright = grey.astype(np.float32)
    paper = _paper(bright)
    darker = paper - bright
    # Means of 3x3 pixels distinguish faint ink from noise; a small picture has too few pixels.
    smooth = _mean3(darker) if min(grey.shape) > 40 else darker
    noise = 1.4826 * float(np.median(np.abs(smooth)))
    if invert is None:
        floor = max(_NOISES * noise, _LEAST_CONTRAST) / 2.0
        invert = _weight(smooth, floor) >= _weight(-smooth, floor)
    sign = 1.0 if invert else -1.0
    # Dark ink absorbs a share of the light, so its strength is a ratio.
    scale = np.float32(sign * 255.0) / np.maximum(paper, 16.0) if invert else np.float32(sign)
    level, smooth = darker * scale, smooth * scale
    noise *= float(np.median(np.abs(scale)))
    cleaned, ruled = without_lines(level / np.float32(255.0), noise / 255.0)
    if ruled:
        level = cleaned * np.float32(255.0)
        smooth = _mean3(level) if min(grey.shape) > 40 else level
        noise = 1.4826 * float(np.median(np.abs(smooth)))
    contrast = float(smooth.max())
    if contrast < max(_LEAST_CONTRAST, _NOISES * noise):
        return None
    strong = level[(smooth > 0.5 * contrast) & (level > 0.5 * contrast)]
    core = float(np.median(strong)) if strong.size else contrast
    level, smooth = (np.clip(plane / core, 0.0, 1.0) for plane in (level, smooth))
    return Ink(level, smooth, noise / core, invert, ruled)


def find_sheet(grey: NDArray[np.uint8]) -> tuple[slice, slice] | None:
    """Rows and columns of a sheet of paper on something darker or lighter. grey: (H, W).

    That is one large, nearly rectangular region that cannot be reached from the border and is
    mostly darker, or mostly lighter, than it; a bold digit is not rectangular. The rim of the sheet
    is left out.
    """
    height, width = grey.shape
    cells = _resized(grey.astype(np.float32), _cells(grey.shape))
    edge = _edge(cells.shape)
    away = cells - _surface(_fit(cells, edge, 2), cells.shape)
    inside = ~_reached(cells)
    if inside.mean() < _SHEET_OF_PAGE:
        return None
    usual = float(np.median(away[inside]))
    departs = inside & (away * np.sign(usual) > max(abs(usual) / 2.0, _LEAST_CONTRAST))
    labels, _ = label_regions(departs)
    areas = np.bincount(labels.reshape(-1))
    areas[0] = 0
    region = labels == areas.argmax()
    rows, columns = bounds(region)
    box = (rows.stop - rows.start) * (columns.stop - columns.start)
    if areas.max() < max(_SHEET_OF_PAGE * cells.size, _SHEET_OF_BOX * box):
        return None
    found = []
    for places, cell in ((rows, height / cells.shape[0]), (columns, width / cells.shape[1])):
        low, high = places.start * cell, places.stop * cell
        rim = _RIM * (high - low)
        found.append(slice(round(low + rim), round(high - rim)))
    return found[0], found[1]


def _weight(departure: Plane, floor: float) -> float:
    """The sum of the differences from the paper to one side, beyond ``floor``."""
    return float(np.clip(departure - floor, 0.0, None).sum(dtype=np.float64))


def _paper(bright: Plane) -> Plane:
    """The brightness of the bare paper everywhere: (H, W)."""
    cells = _cells(bright.shape)
    coarse = _resized(bright, cells)
    paper = _resized(_filled(coarse, _reached(coarse)), bright.shape)
    # Again without the strokes that were thinner than a cell. What the surface cannot follow is
    # added as local means, which alone would be wrong where light falls off towards the border.
    away = np.abs(bright - paper)
    bare = away <= np.float32(max(4.5 * float(np.median(away)), 6.0))
    weight = _resized(bare.astype(np.float32), cells)
    total = _resized(np.where(bare, bright, np.float32(0.0)), cells)
    found = weight > 0.2
    means = np.where(found, total / np.where(found, weight, np.float32(1.0)), np.float32(0.0))
    fit = _fit(means, found, 3)
    rest = np.where(found, means - _surface(fit, cells), np.float32(0.0))
    near = _box_mean(found.astype(np.float32), _AROUND)
    known = near > 0.1
    rest = np.where(known, _box_mean(rest, _AROUND) / np.where(known, near, np.float32(1.0)), rest)
    return _surface(fit, bright.shape) + _resized(_filled(rest, known), bright.shape)


def _cells(shape: tuple[int, ...]) -> tuple[int, int]:
    """The number of cells of a picture, vertically and horizontally."""
    share = min(_CELLS / max(shape), 1.0)
    return max(round(shape[0] * share), 2), max(round(shape[1] * share), 2)


def _edge(shape: tuple[int, ...]) -> Mask:
    edge = np.zeros(shape, bool)
    edge[[0, -1]] = True
    edge[:, [0, -1]] = True
    return edge


def _resized(plane: Plane, shape: tuple[int, ...]) -> Plane:
    """Resize to (H, W): by means to smaller sizes, by interpolation to larger ones."""
    from PIL import Image

    smaller = shape[0] < plane.shape[0] or shape[1] < plane.shape[1]
    how = Image.Resampling.BOX if smaller else Image.Resampling.BILINEAR
    return np.asarray(Image.fromarray(plane).resize((shape[1], shape[0]), how))


def _reached(cells: Plane) -> Mask:
    """The cells that can be reached from the border in small steps."""
    edge = _edge(cells.shape)
    away = np.abs(cells - _surface(_fit(cells, edge, 2), cells.shape))
    start = edge & (away <= max(4.0 * float(np.median(away[edge])), _MOST_STEP))
    usual = float(np.median(np.abs(np.diff(cells, axis=1))))
    # The smaller the steps, the less they leak through a faint or blurred stroke; they must
    # suffice for the whole border and most of the page.
    for steps in _STEPS:
        reached = _flooded(cells, start, min(max(steps * usual, _LEAST_STEP), _MOST_STEP))
        if reached[edge].all() and reached.mean() >= _MOST_OF_PAGE:
            break
    return reached


def _flooded(cells: Plane, start: Mask, step: float) -> Mask:
    """The cells that can be reached from ``start`` if neighbours differ by at most ``step``."""
    reached = start
    while True:
        weight = _mean3(reached.astype(np.float32))
        around = _mean3(np.where(reached, cells, np.float32(0.0))) / np.maximum(weight, 1e-6)
        grown = reached | ((weight > 0.0) & (np.abs(cells - around) <= step))
        if np.array_equal(grown, reached):
            return reached
        reached = grown


def _fit(values: Plane, known: Mask, degree: int) -> NDArray[np.float64]:
    """The polynomial of x and y that fits most of the known values: coefficients by power."""
    height, width = values.shape
    powers = [(i, j) for i in range(degree + 1) for j in range(degree + 1 - i)]
    rows, columns = np.nonzero(known)
    y, x = (rows + 0.5) / height - 0.5, (columns + 0.5) / width - 0.5
    terms = np.stack([y**i * x**j for i, j in powers], -1)
    wanted = values[known].astype(np.float64)
    away = np.abs(wanted - np.median(wanted))
    for _ in range(5):
        kept = away <= max(4.5 * float(np.median(away)), _MOST_STEP / 2.0)
        some = terms[kept]
        # The last summand decides if too few values are left to determine every coefficient.
        square = some.T @ some + 1e-9 * len(terms) * np.eye(len(powers))
        solution = np.linalg.solve(square, some.T @ wanted[kept])
        away = np.abs(terms @ solution - wanted)
    coefficients = np.zeros((degree + 1, degree + 1))
    for (i, j), value in zip(powers, solution, strict=True):
        coefficients[i, j] = value
    return coefficients


def _surface(coefficients: NDArray[np.float64], shape: tuple[int, ...]) -> Plane:
    """The polynomial at the middle of every pixel: (H, W)."""
    y, x = ((np.arange(side) + 0.5) / side - 0.5 for side in shape)
    columns = np.polynomial.polynomial.polyvander(x, len(coefficients) - 1)
    rows = np.polynomial.polynomial.polyvander(y, len(coefficients) - 1)
    return (rows @ coefficients @ columns.T).astype(np.float32)


def _filled(values: Plane, known: Mask) -> Plane:
    """Replace unknown values by means of the nearest known ones."""
    weights = known.astype(np.float32)
    kept = np.where(known, values, np.float32(0.0))
    filled = np.full(values.shape, kept.sum() / max(float(weights.sum()), 1.0), np.float32)
    radius = max(values.shape)
    while radius >= 1:
        weight, total = _box_mean(weights, radius), _box_mean(kept, radius)
        some = weight > 0.5 / (2 * radius + 1) ** 2
        filled = np.where(some, total / np.where(some, weight, np.float32(1.0)), filled)
        radius //= 2
    return np.where(known, values, filled)


def _box_mean(values: Plane, radius: int) -> Plane:
    """Sums over squares of 2 radius + 1 pixels, zeros around, divided by their area: (H, W)."""
    side = 2 * radius + 1
    summed = values.astype(np.float64)
    for axis in (0, 1):
        pads = [(radius + 1, radius) if i == axis else (0, 0) for i in (0, 1)]
        running = np.cumsum(np.pad(summed, pads), axis)
        length = summed.shape[axis]
        high = np.take(running, range(side, side + length), axis)
        summed = high - np.take(running, range(length), axis)
    return (summed / side**2).astype(np.float32)


def _mean3(values: Plane) -> Plane:
    """Means over 3x3 pixels, zeros around."""
    padded = np.pad(values, 1)
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    means: Plane = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]) / np.float32(9.0)
    return means
