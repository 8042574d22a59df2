"""Gathering with augmentation, and views: see graph.augmentations for what is drawn and done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import ShapeError
from ...common.random import Key, words
from ...common.records import dataclass
from ...graph.augmentations import (
    PERMUTATIONS,
    AlternatingFlip,
    Augmentation,
    Cutout,
    Elastic,
    RandomCrop,
    RandomFlip,
    Recolour,
    stages,
)
from ...graph.mixing import DRAWS, last_words, tables
from ...graph.ops import (
    AverageViews,
    ChangePixels,
    GatherAugmented,
    LeastSure,
    MixSamples,
    Views,
    share_of,
)
from ..base import Array
from .kernels import kernel
from .resample import drawn_words, resampled, sources
from .step import Arrays, picked_rows, scaled

Integers = NDArray[np.signedinteger[Any]]
Masks = NDArray[np.bool_]
# Values that are moved, or resampled, at a time: fewer are more calls, more are more fresh memory.
_MOVED, _RESAMPLED = 1 << 18, 1 << 16


@kernel(GatherAugmented, "take")
def gather_augmented(
    op: GatherAugmented, images: Array, labels: Array, order: Array, step: Array
) -> Arrays:
    rows = picked_rows(op, images, labels, order, step)
    found = np.maximum(rows, 0)
    epoch = int(step[0]) // (len(order) // len(rows))
    drawn = decisions(op, found, epoch)
    floating = np.float64 if stages(op.augment)[1] else np.uint8
    pictures = augmented(op, images, found, epoch, drawn, np.empty(op.x.shape, floating))
    return scaled(op, pictures, labels, rows)


@kernel(ChangePixels, "apply")
def change_pixels(op: ChangePixels, x: Array, step: Array) -> Array:
    n = len(x)
    drawn = words(op.key, 0, int(step[0]) * n, n)
    scale, shift = (np.array(each, np.float32).reshape(-1, 1, 1) for each in (op.scale, op.shift))
    pixels = np.asarray((x - shift) / scale, np.float32)
    changed = np.asarray(op.augment.apply(pixels, drawn))
    if changed.shape != x.shape:
        raise ShapeError(
            f"augmentation '{op.augment.kind}': apply returned {changed.shape}, not {x.shape}"
        )
    return np.asarray(changed * scale + shift, x.dtype)


@kernel(MixSamples, "where")
def mix_samples(op: MixSamples, x: Array, target: Array, step: Array) -> Arrays:
    n, _, height, width = op.y.shape
    weight, top, left, bottom, right = drawn_mixes(op, int(step[0]))
    first, second = x[:n], x[n:]
    w = weight.astype(x.dtype)[:, None, None, None]
    y = first * w + second * (1 - w)
    rows, columns = np.arange(height), np.arange(width)
    inside_y = (rows >= top[:, None]) & (rows < bottom[:, None])
    inside_x = (columns >= left[:, None]) & (columns < right[:, None])
    np.copyto(y, second, where=inside_y[:, None, :, None] & inside_x[:, None, None, :])
    share = (weight * (1 - (bottom - top) * (right - left) / (height * width)))[:, None]
    if target.ndim == 1:
        target = (target[:, None] == np.arange(op.mixed.shape[1])).astype(np.float32)
    return y, (target[:n] * share + target[n:] * (1 - share)).astype(target.dtype)


def drawn_mixes(op: MixSamples, step: int) -> tuple[Array, ...]:
    """Weights and rectangles of the pictures of a step: weight, top, left, bottom, right; (N,)."""
    n, _, height, width = op.y.shape
    epoch, place = divmod(step, op.steps)
    words = drawn_words(op.key, np.arange(n) + place * n, epoch)
    # A word beyond the last has the table of what is not mixed.
    chosen = np.searchsorted(last_words(op.mixes), words[:, 3])
    numbers = _below(words[:, :3], (DRAWS, height, width)).T
    weight, *sides = tables(op.mixes, height, width)[chosen, numbers[0]].T
    middle, half = numbers[1:], np.array(sides, np.int32) // 2
    top, left = np.maximum(middle - half, 0)
    bottom, right = np.minimum(middle + half, [[height], [width]])
    return weight, top, left, bottom, right


@kernel(LeastSure, "argsort")
def least_sure(op: LeastSure, scores: Array, target: Array) -> Arrays:
    second, best = np.partition(scores, -2)[:, -2:].T
    with np.errstate(invalid="ignore"):
        gap = best - second
    gap = np.where(np.isnan(gap) | (target < 0), np.inf, gap)
    rows = np.argsort(gap, kind="stable")[: op.rows.size].astype(np.int32)
    place = np.full(len(scores), -1, np.int32)
    kept = share_of(int((target >= 0).sum()), op.share)
    place[rows[:kept]] = np.arange(kept)
    return place, rows


@kernel(Views, "take")
def views(op: Views, x: Array, rows: Array | None = None) -> Array:
    x = x if rows is None else x[rows]
    height, width = op.x.shape[2:]
    parts = []
    for view in op.views:
        y = _reflected(np.arange(height) + view.down, height)
        across = np.arange(width)[:: -1 if view.flip else 1] + view.right
        parts.append(x[:, :, y].take(_reflected(across, width), axis=3))
    return np.concatenate(parts)


@kernel(AverageViews, "tensordot")
def average_views(
    op: AverageViews, x: Array, scores: Array | None = None, place: Array | None = None
) -> Array:
    weights = np.array(op.weights, x.dtype)
    found = np.tensordot(weights, x.reshape(len(weights), -1, *op.y.shape[1:]), 1)
    if scores is None or place is None:
        return np.asarray(found)
    return np.where((place < 0)[:, None], scores, found[place])


def decisions(op: GatherAugmented, samples: Array, epoch: int) -> list[Array]:
    """For each augmentation what it does to each sample: (n, k), k by its kind.

    Whole numbers (a corner, 0 or 1) for those that move whole pixels; fractions in (0, 1) for maps
    of the plane; nothing (k = 0) for elastic, whose noise is drawn where it is used.
    """
    picture = op.x.shape[2], op.x.shape[3]
    keyed = zip(op.augment, op.keys, strict=True)
    return [_decision(each, key, samples, epoch, picture) for each, key in keyed]


def _decision(
    each: Augmentation, key: Key, samples: Array, epoch: int, picture: tuple[int, int]
) -> Array:
    if isinstance(each, Elastic):
        return np.zeros((len(samples), 0))
    if isinstance(each, AlternatingFlip):
        first = drawn_words(key, samples, 0)[:, :1] >> np.uint32(31)
        return (first ^ np.uint32(epoch & 1)).astype(np.int32)
    words = drawn_words(key, samples, epoch)
    if isinstance(each, RandomFlip):
        return (words[:, :1] >> np.uint32(31)).astype(np.int32)
    if isinstance(each, RandomCrop):
        return _below(words[:, :2], (2 * each.padding + 1,) * 2)
    if isinstance(each, Recolour):
        return np.stack([_below(words[:, :1], (6,))[:, 0], words[:, 1]], 1)
    if isinstance(each, Cutout):
        return _below(words[:, :2], (picture[0] - each.size + 1, picture[1] - each.size + 1))
    return (words[:, :2] + 0.5) * 2.0**-32


def _below(words: NDArray[np.uint32], sizes: tuple[int, ...]) -> Integers:
    product = words.astype(np.uint64) * np.array(sizes, np.uint64)
    return (product >> np.uint64(32)).astype(np.int32)


def augmented(
    op: GatherAugmented, images: Array, rows: Array, epoch: int, drawn: Sequence[Array], out: Array
) -> Array:
    """out = the augmented pixels of images[rows]; drawn: of these rows.

    out: (n, C, H, W), uint8, or where something is resampled the type to compute in.
    """
    # A few pictures at a time: the indices of all pixels of a large batch would fill gigabytes.
    size = max(1, (_RESAMPLED if stages(op.augment)[1] else _MOVED) // out[0].size)
    for begin in range(0, len(rows), size):
        part = slice(begin, begin + size)
        _augment(op, images, rows[part], epoch, [each[part] for each in drawn], out[part])
    return out


def _augment(
    op: GatherAugmented, images: Array, rows: Array, epoch: int, drawn: Sequence[Array], out: Array
) -> None:
    before, resampling, after = stages(op.augment)
    source, picked = images, rows
    if any(isinstance(each, Recolour) for each in op.augment):
        source, picked = _recoloured(op, images[rows], drawn), np.arange(len(rows))
    if not resampling:
        _moved(op, source, picked, _followed(op, drawn, before, len(rows)), out)
        return
    pictures = source[picked]
    if before:
        way = _followed(op, drawn, before, len(rows))
        pictures = _moved(op, source, picked, way, np.empty_like(pictures))
    pictures = resampled(pictures, *sources(op, rows, epoch, drawn, out.dtype))
    if after:
        _moved(op, pictures, np.arange(len(rows)), _followed(op, drawn, after, len(rows)), out)
    else:
        out[...] = pictures


def _recoloured(op: GatherAugmented, pictures: Array, drawn: Sequence[Array]) -> Array:
    """Pictures (n, C, H, W) with the colours that each Recolour gives them, in order."""
    channels = pictures.shape[1]
    for each, values in zip(op.augment, drawn, strict=True):
        if isinstance(each, Recolour):
            if channels == 3:
                chosen = np.array(PERMUTATIONS)[values[:, 0]]
                pictures = np.take_along_axis(pictures, chosen[:, :, None, None], 1)
            bits = values[:, 1:] >> (31 - np.arange(channels) % 32) & 1
            # 255 - v is v with every bit turned over.
            pictures = pictures ^ (bits * 255).astype(np.uint8)[:, :, None, None]
    return pictures


@dataclass
class _Followed:
    """Where each row and column of each output comes from: y (n, H), x (n, W).

    ``inside``: of rows and columns, False if the way ended in black. ``cut``: rows and columns of
    squares; a pixel in both of a pair is filled.
    """

    y: Integers
    x: Integers
    inside: tuple[Masks, Masks] | None = None
    cut: tuple[tuple[Masks, Masks], ...] = ()


def _followed(op: GatherAugmented, drawn: Sequence[Array], indices: range, n: int) -> _Followed:
    """The way of output pixels back through augmentations that move whole pixels."""
    height, width = op.x.shape[2:]
    way = _Followed(
        np.broadcast_to(np.arange(height, dtype=np.int32), (n, height)),
        np.broadcast_to(np.arange(width, dtype=np.int32), (n, width)),
    )
    for index in reversed(indices):
        each, values = op.augment[index], drawn[index]
        if isinstance(each, RandomCrop):
            way.y, y_inside = _cropped(each, way.y, values[:, 0], height)
            way.x, x_inside = _cropped(each, way.x, values[:, 1], width)
            if each.mode == "zero":
                known = way.inside or (np.True_, np.True_)
                way.inside = known[0] & y_inside, known[1] & x_inside
        elif isinstance(each, Cutout):
            y_known, x_known = way.inside or (np.True_, np.True_)
            rows = _within(way.y, values[:, 0], each.size) & y_known
            columns = _within(way.x, values[:, 1], each.size) & x_known
            way.cut = (*way.cut, (rows, columns))
        elif not isinstance(each, Recolour):
            way.x = np.where(values != 0, width - 1 - way.x, way.x)
    return way


def _cropped(crop: RandomCrop, at: Integers, corner: Integers, size: int) -> tuple[Integers, Masks]:
    moved = at + (corner - crop.padding)[:, None]
    inside = (moved >= 0) & (moved < size)
    if crop.mode == "reflect":
        return _reflected(moved, size), inside
    return np.where(inside, moved, 0), inside


def _within(at: Integers, corner: Integers, size: int) -> Masks:
    from_corner = at - corner[:, None]
    return (from_corner >= 0) & (from_corner < size)


def _moved(op: GatherAugmented, source: Array, rows: Array, way: _Followed, out: Array) -> Array:
    """out[i, :, h, w] = source[rows[i], :, y[i, h], x[i, w]], or black, or the fill."""
    _, channels, height, width = source.shape
    plane = np.arange(channels, dtype=np.int64) * (height * width)
    start = rows.astype(np.int64)[:, None] * (channels * height * width) + plane
    within = (way.y * np.int32(width))[:, :, None] + way.x[:, None, :]
    index = start[:, :, None] + within.reshape(len(rows), 1, -1)
    # "clip" writes to ``out`` without a buffer; no index is outside.
    source.reshape(-1).take(index, out=out.reshape(index.shape), mode="clip")
    if way.inside is not None:
        y_inside, x_inside = way.inside
        out *= y_inside[:, None, :, None] & x_inside[:, None, None, :]
    fill = np.array(op.fill, source.dtype)[:, None, None]
    for rows_in, columns_in in way.cut:
        square = rows_in[:, None, :, None] & columns_in[:, None, None, :]
        np.copyto(out, fill, where=square)
    return out


def _reflected(at: Integers, size: int) -> Integers:
    """-1 is 1, ``size`` is size - 2; the outermost pixel is not repeated."""
    at = np.abs(at)
    return np.where(at >= size, 2 * (size - 1) - at, at)
