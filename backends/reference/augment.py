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
    Boxed,
    Elastic,
    RandomCrop,
    RandomFlip,
    Recolour,
    changes_colours,
    reflects,
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
from ...graph.varying import Varied, variants
from ..base import Array
from .kernels import kernel
from .resample import drawn_words, folded, resampled, sources
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

    Whole numbers (a corner, sides, 0 or 1, a variant) for those that move whole pixels or draw from
    tables; fractions in (0, 1) for maps of the plane; nothing (k = 0) for elastic, whose noise is
    drawn where it is used.
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
    if isinstance(each, Boxed):
        sizes = each.rectangles(*picture)
        sides = sizes[_below(words[:, 2], (len(sizes),))]
        corner = _below(words[:, :2], np.array(picture) - sides + 1)
        return np.where(words[:, 3:] <= each.last_word, np.hstack([corner, sides]), 0)
    if isinstance(each, Varied):
        return _below(words[:, :1], (DRAWS,))
    return (words[:, :2] + 0.5) * 2.0**-32


def _below(words: NDArray[np.uint32], sizes: Any) -> Integers:
    product = words.astype(np.uint64) * np.asarray(sizes).astype(np.uint64)
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
    if changes_colours(op.augment):
        source, picked = _coloured(op, images[rows], drawn), np.arange(len(rows))
    if not resampling:
        _moved(op, source, picked, _followed(op, drawn, before, len(rows)), out)
        return
    pictures = source[picked]
    if before:
        way = _followed(op, drawn, before, len(rows))
        pictures = _moved(op, source, picked, way, np.empty_like(pictures))
    y, x = sources(op, rows, epoch, drawn, out.dtype)
    if reflects(op.augment):
        y, x = folded(y, op.x.shape[2]), folded(x, op.x.shape[3])
    pictures = resampled(pictures, y, x)
    if after:
        _moved(op, pictures, np.arange(len(rows)), _followed(op, drawn, after, len(rows)), out)
    else:
        out[...] = pictures


def _coloured(op: GatherAugmented, pictures: Array, drawn: Sequence[Array]) -> Array:
    """Pictures (n, C, H, W) with the colours that each augmentation gives them, in order."""
    n, channels, height, width = pictures.shape
    pixels = pictures.reshape(n, channels, -1)
    mean = np.append(pixels.mean(2), np.ones((n, 1)), 1)[:, :, None]
    # The last column is added.
    matrix = np.tile(np.eye(channels, channels + 1), (n, 1, 1))
    first, kept = np.full((n, 1), 256), np.full((n, 1), 255)
    for each, values in zip(op.augment, drawn, strict=True):
        if isinstance(each, Recolour):
            if channels == 3:
                chosen = np.array(PERMUTATIONS)[values[:, 0]]
                matrix = np.take_along_axis(matrix, chosen[:, :, None], 1)
            negative = (values[:, 1:] >> (31 - np.arange(channels) % 32) & 1)[:, :, None]
            matrix = matrix * (1 - 2 * negative)
            matrix[:, :, -1:] += 255 * negative
        elif isinstance(each, Varied):
            _, tables, ends = variants(each, channels, height, width)
            linear, added = np.split(tables[values[:, 0]], [channels], 1)
            found = linear @ matrix
            found[:, :, -1:] += added @ (matrix @ mean)
            matrix = found
            first, kept = np.minimum(first, ends[values, 0]), kept & ends[values, 1]
    fixed = np.rint(matrix * 2.0**16)
    value = np.floor((fixed[:, :, :-1] @ pixels + fixed[:, :, -1:]) * 2.0**-16 + 0.5)
    value = value.clip(0, 255).astype(np.uint8)
    value = np.where(value >= first[:, None], 255 - value, value) & kept[:, None].astype(np.uint8)
    return value.reshape(pictures.shape)


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
        elif isinstance(each, Boxed):
            y_known, x_known = way.inside or (np.True_, np.True_)
            top, left, high, wide = values.T
            inside = _within(way.y, top, high) & y_known, _within(way.x, left, wide) & x_known
            way.cut = (*way.cut, inside)
        elif isinstance(each, (RandomFlip, AlternatingFlip)):
            way.x = np.where(values != 0, width - 1 - way.x, way.x)
    return way


def _cropped(crop: RandomCrop, at: Integers, corner: Integers, size: int) -> tuple[Integers, Masks]:
    moved = at + (corner - crop.padding)[:, None]
    inside = (moved >= 0) & (moved < size)
    if crop.mode == "reflect":
        return _reflected(moved, size), inside
    return np.where(inside, moved, 0), inside


def _within(at: Integers, corner: Integers, size: Integers) -> Masks:
    from_corner = at - corner[:, None]
    return (from_corner >= 0) & (from_corner < size[:, None])


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
