"""Drawing the ``strokes`` digits: skeleton -> distorted pen path -> picture in MNIST's format.

Sample ``i`` uses only the random words of counter ``i``, and every operation is element by element,
so that a sample does not depend on the batch in which it is drawn. Nothing here calls BLAS, whose
sums depend on the shapes of its operands.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.random import Key, words
from .centring import BOX, centre_by_mass
from .strokes_tables import Floats, Integers, Tables, tables

# Paths are cheap and drawn many at a time; ink is drawn in pieces that fit in the cache.
_PATH_CHUNK = 512
_INK_CHUNK = 128

# How much digits vary, as standard deviations of bell-shaped numbers; lengths are in heights.
_JITTER = 0.05
_JITTER_SPREAD = 0.4
_STROKE_SHIFT = 0.06
_WARP = 0.22
_WIDTH = 0.28
_SLANT = 0.30
_TURN = 0.12
_PEN = 0.28
_SWELL = 0.2
_SWELL_MIDDLE = 0.1

# In pixels of the 20x20 box: the pen's radius, and the width of its soft edge.
_RADIUS = 1.32
_EDGE = 1.35
_EDGE_SPREAD = 0.2

# The words of a sample: digit and variant, one for each of these, two per control point.
_SINGLE = 14
_STROKES = 3
_JITTERS = 2 + _SINGLE + 2 * _STROKES


def draw(stream: Key, start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Samples start .. stop - 1 of a stream: (M, 28, 28) uint8 pictures and (M,) int32 labels."""
    images = np.empty((stop - start, 28, 28), np.uint8)
    labels = np.empty(stop - start, np.int32)
    for low in range(start, stop, _PATH_CHUNK):
        high = min(low + _PATH_CHUNK, stop)
        digits, paths, pens, edges = _paths(tables(), stream, low, high)
        labels[low - start : high - start] = digits
        for first in range(0, high - low, _INK_CHUNK):
            part = slice(first, first + _INK_CHUNK)
            boxes = _ink(paths[part], pens[part], edges[part])
            offset = low - start + first
            images[offset : offset + len(boxes)] = centre_by_mass(boxes)
    return images, labels


def _paths(
    table: Tables, stream: Key, start: int, stop: int
) -> tuple[Integers, Floats, Floats, Floats]:
    """Digits (n,), paths (n, P, 2) and pen radii (n, P) in box pixels, edge widths (n,)."""
    count, controls = stop - start, table.control.shape[1]
    blocks = -(-(_JITTERS + 2 * controls) // 4)
    raw = words(stream, np.arange(start, stop, dtype=np.uint64), 0, blocks).reshape(count, -1)
    digit = ((raw[:, 0].astype(np.uint64) * np.uint64(10)) >> np.uint64(32)).astype(np.int64)
    share = (raw[:, 1] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    variant = table.first[digit] + (share[:, None] >= table.bounds[digit]).sum(1)
    bell = _bell(raw[:, 2:])
    single = bell[:, :_SINGLE].T[..., None]
    shift = bell[:, _SINGLE : _SINGLE + 2 * _STROKES].reshape(count, _STROKES, 2)
    jitter = bell[:, _JITTERS - 2 : _JITTERS - 2 + 2 * controls].reshape(count, controls, 2)

    spread = _JITTER * np.exp(_JITTER_SPREAD * single[0]) * table.loose[variant]
    points = table.control[variant] + spread[..., None] * _along_stroke(jitter)
    own_stroke = table.stroke[variant][..., None]
    points = points + np.float32(_STROKE_SHIFT) * np.take_along_axis(shift, own_stroke, 1)
    x, y = _distorted(points[..., 0], points[..., 1], np.float32(_WARP) * single[1:7])
    width = table.width[digit, None] * np.exp(np.float32(_WIDTH) * single[7])
    slant = table.lean[digit, None] + np.float32(_SLANT) * single[8]
    turn = np.float32(_TURN) * single[9]
    x = x * width - slant * y
    x, y = x - turn * y, y + turn * x

    places = np.arange(count)[:, None, None] * controls + table.taps[variant]
    weights = table.weights[variant]
    x = (x.reshape(-1)[places] * weights).sum(2)
    y = (y.reshape(-1)[places] * weights).sum(2)

    radius = np.float32(_RADIUS) * table.pen[digit, None] * np.exp(np.float32(_PEN) * single[10])
    along = np.linspace(-1.0, 1.0, x.shape[1], dtype=np.float32)
    swell = np.float32(_SWELL) * single[11] * along + np.float32(_SWELL_MIDDLE) * single[12] * (
        np.abs(2.0 * along) - 1.0
    )
    edge = np.maximum(_EDGE + _EDGE_SPREAD * single[13, :, 0], 0.6)
    return digit, _into_box(x, y, radius), radius * np.exp(swell), edge.astype(np.float32)


def _bell(raw: NDArray[np.uint32]) -> Floats:
    """A bell-shaped number of mean 0 and variance 1 from each word: the sum of its four bytes."""
    total = np.ascontiguousarray(raw).view(np.uint8).reshape(*raw.shape, 4).sum(-1, dtype=np.int32)
    bell: Floats = (total - 510).astype(np.float32) * np.float32((4 * (256**2 - 1) / 12) ** -0.5)
    return bell


def _along_stroke(jitter: Floats) -> Floats:
    """Jitter that is correlated along the path, as that of a pen is. (n, K, 2)."""
    padded = np.concatenate([jitter[:, :1], jitter, jitter[:, -1:]], 1)
    neighbours = padded[:, :-2] + padded[:, 2:]
    smooth: Floats = (neighbours + 2.0 * jitter) * np.float32(6.0**-0.5)
    return smooth


def _distorted(x: Floats, y: Floats, bend: Floats) -> tuple[Floats, Floats]:
    """A smooth distortion of the whole plane, quadratic in x and y."""
    across, along, both = x * x, y * y, x * y
    return (
        x + bend[0] * both + bend[1] * along + bend[2] * across,
        y + bend[3] * both + bend[4] * across + bend[5] * along,
    )


def _into_box(x: Floats, y: Floats, radius: Floats) -> Floats:
    """Scaled with its proportions kept so that the inked digit fills the box: (n, P, 2)."""
    left, right = x.min(1, keepdims=True), x.max(1, keepdims=True)
    top, bottom = y.min(1, keepdims=True), y.max(1, keepdims=True)
    scale = (BOX - 2.0 * radius) / np.maximum(right - left, bottom - top)
    middle = np.float32(0.5 * BOX)
    paths: Floats = np.stack(
        [
            (x - np.float32(0.5) * (left + right)) * scale + middle,
            (y - np.float32(0.5) * (top + bottom)) * scale + middle,
        ],
        axis=-1,
    )
    return paths


def _ink(paths: Floats, pens: Floats, edges: Floats) -> NDArray[np.uint8]:
    """Ink of round pens along paths, anti-aliased. (n, P, 2), (n, P), (n,) -> (n, 20, 20) uint8.

    A pixel's distance to the path is the least over the path's points, in units of the pen there;
    its level falls smoothly from 255 to 0 over the edge's width. n is the last axis while drawing,
    so that every operation runs over contiguous memory.
    """
    centres = (np.arange(BOX, dtype=np.float32) + np.float32(0.5))[:, None]
    scale = np.ascontiguousarray((np.float32(1.0) / pens).T)[:, None]
    columns = ((centres - paths[..., 0].T[:, None]) * scale) ** 2
    rows = ((centres - paths[..., 1].T[:, None]) * scale) ** 2
    nearest = np.full((BOX, BOX, len(paths)), np.inf, np.float32)
    sums = np.empty_like(nearest)
    for row, column in zip(rows, columns, strict=True):
        np.add(row[:, None], column, out=sums)
        np.minimum(nearest, sums, out=nearest)
    ink = (np.float32(1.0) - np.sqrt(nearest)) * (pens.mean(1) / edges) + np.float32(0.5)
    ink = np.clip(ink, 0.0, 1.0)
    level = ink * ink * (np.float32(765.0) - np.float32(510.0) * ink) + np.float32(0.5)
    return np.ascontiguousarray(level.astype(np.uint8).transpose(2, 0, 1))
