"""The skeletons as arrays: every path point of a variant as a sum of four of its control points."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass

# It says itself what is in it.
_SKELETONS = Path(__file__).with_name("strokes_skeletons.txt")
# Points along the pen's path: about half a pixel apart for the longest digit in the 20-pixel box.
PATH_POINTS = 96
_FEWEST_POINTS = 4
_STEPS_TO_MEASURE = 24
# The ends of a stroke vary more than its middle.
_LOOSE_END = 1.8

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Tables:
    """V variants in the order of their digits, K control points at most, P path points.

    control: (V, K, 2) in heights and widths about the middle; loose: (V, K) how much a control
    point varies; stroke: (V, K) the number of its stroke; taps: (V, P, 4) control points of a path
    point and weights: (V, P, 4) their share of it. first: (10,) a digit's first variant; bounds:
    (10, most) the running sums of its variants' shares; width, lean, pen: (10,) of each digit.
    """

    control: Floats
    loose: Floats
    stroke: Integers
    taps: Integers
    weights: Floats
    first: Integers
    bounds: Floats
    width: Floats
    lean: Floats
    pen: Floats


@cache
def tables() -> Tables:
    """All variants of all digits, computed at the first call."""
    _, *texts = _SKELETONS.read_text("ascii").split("\ndigit ")
    blocks = [text.splitlines() for text in texts]
    sizes = [[float(size) for size in block[0].split()] for block in blocks]
    # For each variant of each digit its share and its skeleton.
    digits = [[row.split(" ", 1) for row in rows] for _, *rows in blocks]
    variants = [_variant(text) for digit in digits for _, text in digit]
    most = max(len(points) for points, *_ in variants)
    control = np.zeros((len(variants), most, 2), np.float32)
    loose = np.ones((len(variants), most), np.float32)
    stroke = np.zeros((len(variants), most), np.int64)
    for row, (points, strokes, _, _) in enumerate(variants):
        control[row, : len(points)] = points - 0.5
        stroke[row, : len(points)] = strokes
        ends = np.flatnonzero(np.diff(strokes))
        loose[row, np.concatenate([[0], ends, ends + 1, [len(points) - 1]])] = _LOOSE_END
    counts = [len(digit) for digit in digits]
    # No random number selects an index beyond a digit's last variant.
    bounds = np.full((len(digits), max(counts)), 2.0, np.float32)
    for row, digit in enumerate(digits):
        shares = np.array([float(share) for share, _ in digit])
        bounds[row, : counts[row] - 1] = (np.cumsum(shares) / shares.sum())[:-1]
    return Tables(
        control,
        loose,
        stroke,
        np.stack([taps for _, _, taps, _ in variants]),
        np.stack([weights for *_, weights in variants]).astype(np.float32),
        np.cumsum([0, *counts[:-1]]),
        bounds,
        *np.array(sizes, np.float32).T,
    )


def _variant(text: str) -> tuple[NDArray[np.float64], Integers, Integers, NDArray[np.float64]]:
    """Control points (k, 2), their strokes (k,), taps and weights (P, 4), evenly along the path."""
    points, strokes, pieces = _parse(text)
    measured: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
    for piece in pieces:
        segments = len(piece) - 1
        fine = np.linspace(0.0, segments, _STEPS_TO_MEASURE * segments + 1)
        taps, weights = _spline(points[piece], fine)
        curve = (points[piece][taps] * weights[..., None]).sum(1)
        steps = np.sqrt((np.diff(curve, axis=0) ** 2).sum(1))
        measured.append((fine, np.concatenate([[0.0], np.cumsum(steps)])))
    lengths = np.array([travelled[-1] for _, travelled in measured])
    counts = np.maximum((lengths / lengths.sum() * PATH_POINTS).astype(np.int64), _FEWEST_POINTS)
    counts[int(np.argmax(lengths))] += PATH_POINTS - int(counts.sum())
    all_taps, all_weights = [], []
    for piece, (fine, travelled), count in zip(pieces, measured, counts, strict=True):
        at = np.interp(np.linspace(0.0, travelled[-1], count), travelled, fine)
        taps, weights = _spline(points[piece], at)
        all_taps.append(np.array(piece)[taps])
        all_weights.append(weights)
    return points, strokes, np.concatenate(all_taps), np.concatenate(all_weights)


def _parse(text: str) -> tuple[NDArray[np.float64], Integers, list[list[int]]]:
    """Points (k, 2), the stroke of each (k,), and the smooth pieces as lists of point numbers.

    A sharp corner ends one piece and begins the next.
    """
    points: list[tuple[float, float]] = []
    strokes: list[int] = []
    pieces: list[list[int]] = []
    for number, stroke in enumerate(text.split("/")):
        pieces.append([])
        for token in stroke.split():
            x, y = token.rstrip("!").split(",")
            pieces[-1].append(len(points))
            if token.endswith("!"):
                pieces.append([len(points)])
            points.append((float(x) / 100.0, float(y) / 100.0))
            strokes.append(number)
    return np.array(points), np.array(strokes), [piece for piece in pieces if len(piece) > 1]


def _spline(
    points: NDArray[np.float64], at: NDArray[np.float64]
) -> tuple[Integers, NDArray[np.float64]]:
    """Centripetal Catmull-Rom curve (Barry and Goldman 1988; Yuksel, Schaefer, Keyser 2011).

    points: (n, 2); at: (m,) parameters in [0, n - 1], whole numbers at the points. Returns the taps
    (m, 4), numbers of points, and their weights (m, 4). The curve is linear in the points because
    the knots stay those of the undistorted skeleton.
    """
    count = len(points)
    unit = np.eye(count)
    # One mirrored point beyond each end.
    extended = np.concatenate([[2.0 * unit[0] - unit[1]], unit, [2.0 * unit[-1] - unit[-2]]])
    steps = np.diff((extended[..., None] * points).sum(1), axis=0)
    knots = np.concatenate([[0.0], np.cumsum((steps**2).sum(1) ** 0.25)])
    segment = np.clip(at.astype(np.int64), 0, count - 2)
    four = segment[:, None] + np.arange(4)
    k = knots[four].T
    x = k[1] + (at - segment) * (k[2] - k[1])
    level = list(np.broadcast_to(np.eye(4)[:, None], (4, len(at), 4)))
    for spans in (((0, 1), (1, 2), (2, 3)), ((0, 2), (1, 3)), ((1, 2),)):
        level = [
            level[i] * ((k[high] - x) / (k[high] - k[low]))[:, None]
            + level[i + 1] * ((x - k[low]) / (k[high] - k[low]))[:, None]
            for i, (low, high) in enumerate(spans)
        ]
    shares = (level[0][..., None] * extended[four]).sum(1)
    taps = np.clip(segment - 1, 0, max(count - 4, 0))[:, None] + np.arange(4)
    inside = taps < count
    taps = np.minimum(taps, count - 1)
    return taps, np.where(inside, np.take_along_axis(shares, taps, 1), 0.0)
