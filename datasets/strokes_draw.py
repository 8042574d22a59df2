"""Drawing the ``strokes`` digits: skeleton -> distorted pen path -> picture in MNIST's format.

Sample ``i`` reads random words of counter ``i`` alone and every operation is element by element, so
it is the same in whatever batch it is drawn. Nothing here calls BLAS, whose sums depend on shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common.random import Key, words
from .centring import BOX, centre_by_mass
from .strokes_skeletons import DIGITS

Floats = NDArray[np.float32]

# Points along the pen's path; half a pixel apart for the longest digit in the 20-pixel box.
_POINTS = 96
_CURVE_CHUNK = 512
_PIXEL_CHUNK = 128
_SCALARS = 24


@dataclass(frozen=True)
class _Skeletons:
    """All variants as tables. control: (V, K, 2); each of the P path points of a variant is a sum
    of four control points: taps (V, P, 4) int64 and weights (V, P, 4); along: (V, P) position on the
    path in [0, 1]; cumulative: for each digit the shares of its variants, first_variant its row."""

    control: Floats
    taps: NDArray[np.int64]
    weights: Floats
    along: Floats
    first_variant: NDArray[np.int64]
    bounds: NDArray[np.float32]
    width: Floats
    lean: Floats
    pen: Floats
    loose: Floats
    stroke: NDArray[np.int64]


def _parse(text: str) -> tuple[list[tuple[float, float]], list[list[int]]]:
    """Points, and smooth pieces as lists of point numbers; a corner belongs to both its pieces."""
    points: list[tuple[float, float]] = []
    pieces: list[list[int]] = []
    for stroke in text.split("/"):
        pieces.append([])
        for token in stroke.split():
            x, y = token.rstrip("!").split(",")
            points.append((float(x) / 100.0, float(y) / 100.0))
            pieces[-1].append(len(points) - 1)
            if token.endswith("!"):
                pieces.append([len(points) - 1])
    return points, [piece for piece in pieces if len(piece) > 1]


def _spline(
    points: NDArray[np.float64], piece: list[int], at: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Centripetal Catmull-Rom: taps (n, 4) and weights (n, 4) at parameters ``at`` in [0, segments].

    The curve is linear in its points while the knots stay those of the undistorted skeleton.
    """
    count = len(piece)
    segment = np.clip(at.astype(np.int64), 0, count - 2)
    t = at - segment
    taps = np.empty((len(at), 4), np.int64)
    weights = np.zeros((len(at), 4))
    chosen = points[piece]
    for row, (s, u) in enumerate(zip(segment.tolist(), t.tolist(), strict=True)):
        numbers = [max(s - 1, 0), s, s + 1, min(s + 2, count - 1)]
        corner = np.zeros((4, 4))
        for place, number in enumerate(numbers):
            corner[place, place] = 1.0
        if s == 0:
            corner[0] = [0.0, 2.0, -1.0, 0.0]
        if s + 2 > count - 1:
            corner[3] = [0.0, -1.0, 2.0, 0.0]
        place_of = corner @ chosen[numbers]
        gaps = np.sqrt(np.maximum(np.linalg.norm(np.diff(place_of, axis=0), axis=1), 1e-6))
        knots = np.concatenate([[0.0], np.cumsum(gaps)])
        x = knots[1] + u * (knots[2] - knots[1])
        level = [corner[place] for place in range(4)]
        for depth in range(1, 4):
            # Barry and Goldman's pyramid, whose last level spans the middle segment only.
            nodes = [
                (knots[i], knots[i + depth] if depth < 3 else knots[i + 2])
                for i in range(4 - depth)
            ]
            if depth == 3:
                nodes = [(knots[1], knots[2])]
            level = [
                level[i] * ((high - x) / (high - low)) + level[i + 1] * ((x - low) / (high - low))
                for i, (low, high) in enumerate(nodes)
            ]
        taps[row] = [piece[number] for number in numbers]
        weights[row] = level[0]
    return taps, weights


def _variant(text: str) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Control points (k, 2), taps (P, 4) and weights (P, 4) evenly spaced along the path."""
    listed, pieces = _parse(text)
    points = np.array(listed)
    lengths: list[float] = []
    parameters: list[NDArray[np.float64]] = []
    travelled: list[NDArray[np.float64]] = []
    for piece in pieces:
        fine = np.linspace(0.0, len(piece) - 1.0, 24 * (len(piece) - 1) + 1)
        taps, weights = _spline(points, piece, fine)
        curve = (points[taps] * weights[..., None]).sum(1)
        steps = np.linalg.norm(np.diff(curve, axis=0), axis=1)
        parameters.append(fine)
        travelled.append(np.concatenate([[0.0], np.cumsum(steps)]))
        lengths.append(float(steps.sum()))
    shares = np.array(lengths) / sum(lengths) * _POINTS
    counts = np.maximum(np.floor(shares).astype(int), 4)
    counts[int(np.argmax(shares))] += _POINTS - int(counts.sum())
    all_taps, all_weights = [], []
    for piece, fine, distance, count in zip(pieces, parameters, travelled, counts, strict=True):
        at = np.interp(np.linspace(0.0, distance[-1], count), distance, fine)
        taps, weights = _spline(points, piece, at)
        all_taps.append(taps)
        all_weights.append(weights)
    return points, np.concatenate(all_taps), np.concatenate(all_weights)


def _tables() -> _Skeletons:
    variants = [
        (d, share, *_variant(text)) for d in range(10) for share, text in DIGITS[d].variants
    ]
    most = max(len(points) for _, _, points, _, _ in variants)
    control = np.zeros((len(variants), most, 2), np.float32)
    loose = np.ones((len(variants), most), np.float32)
    for row, (_, _, points, _, _) in enumerate(variants):
        control[row, : len(points)] = points
        loose[row, [0, len(points) - 1]] = 1.8
    stroke = np.zeros((len(variants), most), np.int64)
    for row, text in enumerate(text for d in range(10) for _, text in DIGITS[d].variants):
        sizes = [len(part.split()) for part in text.split("/")]
        stroke[row, : sum(sizes)] = np.repeat(np.arange(len(sizes)), sizes)
    widest = max(len(DIGITS[d].variants) for d in range(10))
    bounds = np.ones((10, widest), np.float32)
    first = np.zeros(10, np.int64)
    for d in range(10):
        shares = np.array([share for share, _ in DIGITS[d].variants])
        bounds[d, : len(shares)] = np.cumsum(shares) / shares.sum()
        bounds[d, len(shares) - 1 :] = 2.0
        first[d] = sum(len(DIGITS[e].variants) for e in range(d))
    return _Skeletons(
        control,
        np.stack([taps for *_, taps, _ in variants]),
        np.stack([weights for *_, weights in variants]).astype(np.float32),
        np.linspace(0.0, 1.0, _POINTS, dtype=np.float32),
        first,
        bounds,
        np.array([digit.width for digit in DIGITS], np.float32),
        np.array([digit.lean for digit in DIGITS], np.float32),
        np.array([digit.pen for digit in DIGITS], np.float32),
        loose,
        stroke,
    )


_TABLES: list[_Skeletons] = []


def draw(stream: Key, start: int, stop: int) -> tuple[NDArray[np.uint8], NDArray[np.int32]]:
    """Samples start .. stop - 1 of a stream: (M, 28, 28) uint8 pictures and (M,) int32 labels."""
    if not _TABLES:
        _TABLES.append(_tables())
    images = np.empty((stop - start, 28, 28), np.uint8)
    labels = np.empty(stop - start, np.int32)
    for low in range(start, stop, _CURVE_CHUNK):
        high = min(low + _CURVE_CHUNK, stop)
        path, pen, softness, digit = _paths(_TABLES[0], stream, low, high)
        labels[low - start : high - start] = digit
        for first in range(low, high, _PIXEL_CHUNK):
            part = slice(first - low, min(first + _PIXEL_CHUNK, high) - low)
            boxes = _ink(path[part], pen[part], softness[part])
            images[first - start : first - start + len(boxes)] = centre_by_mass(boxes)
    return images, labels


def _paths(
    tables: _Skeletons, stream: Key, start: int, stop: int
) -> tuple[Floats, Floats, Floats, NDArray[np.int64]]:
    """Pen paths in box pixels (n, P, 2), pen radius at each point (n, P), softness (n,), digit (n,)."""
    count = stop - start
    controls = tables.control.shape[1]
    needed = _SCALARS + 2 * controls
    raw = words(stream, np.arange(start, stop, dtype=np.uint64), 0, -(-needed // 4))
    raw = raw.reshape(count, -1)
    bell = _bell(raw)
    digit = ((raw[:, 0].astype(np.uint64) * np.uint64(10)) >> np.uint64(32)).astype(np.int64)
    share = (raw[:, 1] >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
    variant = tables.first_variant[digit] + (share[:, None] >= tables.bounds[digit]).sum(1)

    jitter = bell[:, _SCALARS : _SCALARS + 2 * controls].reshape(count, controls, 2)
    spread = 0.042 * np.exp(0.4 * bell[:, 2])
    points = (
        tables.control[variant]
        - np.float32(0.5)
        + (spread[:, None] * tables.loose[variant])[..., None] * jitter
    )
    apart = 0.05 * bell[:, 16:22].reshape(count, 3, 2)
    points = points + np.take_along_axis(apart, tables.stroke[variant][..., None], 1)
    x, y = points[..., 0], points[..., 1]
    # Smooth distortion of the whole plane: a writer's hand, not independent points.
    a, b, c, d, e, f = (0.2 * bell[:, 3 + k, None] for k in range(6))
    x, y = x + a * x * y + b * y * y + c * x * x, y + d * x * y + e * x * x + f * y * y
    width = tables.width[digit, None] * np.exp(0.24 * bell[:, 9, None])
    slant = tables.lean[digit, None] + 0.26 * bell[:, 10, None]
    turn = 0.08 * bell[:, 11, None]
    x = x * width - slant * y
    x, y = x - turn * y, y + turn * x

    rows = (np.arange(count, dtype=np.int64) * controls)[:, None, None] + tables.taps[variant]
    weights = tables.weights[variant]
    px = (x.reshape(-1)[rows] * weights).sum(2)
    py = (y.reshape(-1)[rows] * weights).sum(2)

    radius = 1.32 * tables.pen[digit] * np.exp(0.28 * bell[:, 12])
    along = tables.along
    swell = 0.12 * bell[:, 13, None] * (2.0 * along - 1.0) + 0.08 * bell[:, 14, None] * (
        np.abs(4.0 * along - 2.0) - 1.0
    )
    pen = radius[:, None] * np.exp(swell)
    left, right = px.min(1), px.max(1)
    top, bottom = py.min(1), py.max(1)
    extent = np.maximum(right - left, bottom - top)
    scale = (BOX - 2.0 * radius) / extent
    path = np.empty((count, px.shape[1], 2), np.float32)
    path[..., 0] = (px - (0.5 * (left + right))[:, None]) * scale[:, None] + 0.5 * BOX
    path[..., 1] = (py - (0.5 * (top + bottom))[:, None]) * scale[:, None] + 0.5 * BOX
    softness = 1.35 + 0.2 * bell[:, 15]
    return path, pen.astype(np.float32), np.maximum(softness, 0.6).astype(np.float32), digit


def _bell(raw: NDArray[np.uint32]) -> Floats:
    """One bell-shaped number of mean 0 and variance 1 a word: the sum of its four bytes, within 3.5."""
    bytes_ = raw.view(np.uint8).reshape(*raw.shape, 4)
    total = bytes_.sum(-1, dtype=np.uint16).astype(np.float32)
    bell: Floats = (total - np.float32(510.0)) * np.float32(1.0 / 147.8)
    return bell


def _ink(path: Floats, pen: Floats, softness: Floats) -> NDArray[np.uint8]:
    """Ink of round pens along paths, anti-aliased. path: (n, P, 2), pen: (n, P) -> (n, 20, 20) uint8.

    A pixel's distance to the path is the least over the path's points, in units of the pen there.
    """
    count, points, _ = path.shape
    centres = np.arange(BOX, dtype=np.float32) + np.float32(0.5)
    inverse = np.ascontiguousarray((np.float32(1.0) / pen).T)
    across = ((centres[None, :, None] - path[..., 0].T[:, None, :]) * inverse[:, None, :]) ** 2
    down = ((centres[None, :, None] - path[..., 1].T[:, None, :]) * inverse[:, None, :]) ** 2
    nearest = np.full((BOX, BOX, count), np.inf, np.float32)
    sums = np.empty_like(nearest)
    for point in range(points):
        np.add(down[point][:, None, :], across[point][None, :, :], out=sums)
        np.minimum(nearest, sums, out=nearest)
    radius = pen.mean(1)
    ink = (np.float32(1.0) - np.sqrt(nearest)) * (radius / softness) + np.float32(0.5)
    ink = np.clip(ink, 0.0, 1.0)
    ink = ink * ink * (np.float32(3.0) - np.float32(2.0) * ink)
    level = ink * np.float32(255.0) + np.float32(0.5)
    return np.ascontiguousarray(level.astype(np.uint8).transpose(2, 0, 1))
