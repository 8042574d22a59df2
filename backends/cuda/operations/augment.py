"""Gathering with augmentation, and views of a batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, radians
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.augmentations import (
    AlternatingFlip,
    Boxed,
    Elastic,
    RandomCrop,
    RandomFlip,
    RandomResizedCrop,
    Recolour,
    Rotate,
    Scale,
    Shift,
    changes_colours,
    reflects,
    stages,
)
from ....graph.mixing import DRAWS, last_words, tables
from ....graph.ops import AverageViews, GatherAugmented, LeastSure, MixSamples, Views, share_of
from ....graph.varying import Variants, Varied, variants
from ..binding.bind import Binder, binds
from ..libraries.kernels import THREADS, blocks_for, i64
from ..libraries.layout import ceil_div
from .step import GATHER_BLOCKS

# The enumeration of augment.cu; a crop that reflects is the one after RandomCrop.
_KINDS = (
    *(RandomCrop, None, RandomFlip, AlternatingFlip, Boxed, RandomResizedCrop, Elastic, Recolour),
    *(Rotate, Shift, Scale, Varied),
)
_ACT = np.dtype("i4,i4,u4,u4,f4,f4,i4,u4")
FLOATS_A_PIXEL = 4
SURE = "least_sure.cu"


def _acts(op: GatherAugmented) -> NDArray[Any]:
    """Struct Act of augment.cu, of each."""
    table, sides, variants = np.zeros(max(len(op.augment), 1), _ACT), 0, 0
    for i, (each, key) in enumerate(zip(op.augment, op.keys, strict=True)):
        kind = max(k for k, one in enumerate(_KINDS) if one is not None and isinstance(each, one))
        size, first, second, at, last = 0, 0.0, 0.0, 0, 0
        if isinstance(each, RandomCrop):
            kind, size = kind + (each.mode == "reflect"), each.padding
        elif isinstance(each, Boxed):
            size, at, last = len(each.rectangles(*op.x.shape[2:])), sides, each.last_word
            sides += size
        elif isinstance(each, Rotate):
            first = radians(each.degrees)
        elif isinstance(each, Shift):
            first = each.pixels
        elif isinstance(each, Scale):
            first, second = each.min, each.max - each.min
        elif isinstance(each, Elastic):
            size, first = each.radius, each.alpha * 2.0**-15
        elif isinstance(each, Varied):
            size, at = DRAWS, variants
            variants += size
        table[i] = (kind, size, key.low, key.high, first, second, at, last)
    return table


def _tables(op: GatherAugmented) -> Iterator[NDArray[Any]]:
    """The sizes of rectangles, and places, colours and ends of variants, of all acts in turn."""
    _, *picture = op.x.shape
    boxes = [each.rectangles(*picture[1:]) for each in op.augment if isinstance(each, Boxed)]
    yield np.concatenate(boxes or [np.zeros((1, 2), np.int32)])
    varied = [variants(each, *picture) for each in op.augment if isinstance(each, Varied)]
    none = Variants(np.zeros(1), np.zeros(1), np.zeros(1, np.int32))
    yield from map(np.concatenate, zip(*(varied or [none]), strict=True))


def _gaussian(elastic: Elastic) -> list[float]:
    """The weight of a pixel by its distance, 0 to the radius."""
    reach = range(elastic.radius + 1)
    weights = [exp(-(d**2) / (2.0 * elastic.sigma**2)) for d in reach]
    total = 2.0 * sum(weights) - weights[0]
    return [weight / total for weight in weights]


@binds(GatherAugmented)
def gather_augmented(b: Binder, op: GatherAugmented) -> None:
    """x: rows of uint8 pictures, augmented, scaled and shifted, in the order of this step."""
    n, channels, height, width = op.x.shape
    order, feeds = b.data(op.order), b.store.feeds
    layout = b.geometry.picture(op.x.shape, b.number(op.x))
    x = b.output(op.x, layout)
    keyed, placed = order, max(order.size // n, 1)
    steps = placed
    if feeds.holds(op.order):
        # The order is that of the batch at hand; random numbers know samples by their own rows.
        keyed, steps = feeds.staging(b.graph.name).rows, op.order.size // n
    scale, shift, fill = (
        b.numbers(*values, dtype="float32") for values in (op.scale, op.shift, op.fill)
    )
    _, inside, _ = stages(op.augment)
    found = [i for i in inside if isinstance(op.augment[i], Elastic)]
    elastic, gaussian, scratch = -1, None, None
    if found:
        elastic = found[0]
        kernel = op.augment[elastic]
        assert isinstance(kernel, Elastic)
        gaussian = b.numbers(*_gaussian(kernel), dtype="float32")
        scratch = b.scratch(FLOATS_A_PIXEL * n * height * width, "float32")
    count = len(op.augment)
    sample, channel, _, pixel = layout.strides
    # Without a resampling everything comes behind one of nothing.
    begin, end = (inside.start, inside.stop) if inside else (0, 0)
    sizes = (n, channels, height, width, steps, placed, count, begin, end)
    colours = changes_colours(op.augment)
    switches = (int(colours), int(reflects(op.augment)))
    frame = b.numbers(*sizes, elastic, sample, channel, pixel, *switches)
    ahead = b.zeros(1, "int64")
    acts = b.varying(b.live.add(op, ("keys",)), _acts)
    before = (b.data(op.images), b.words(b.data(op.labels)), order, keyed)
    behind: tuple[Any, ...] = (
        *(x, b.words(b.output(op.target)), scale, shift, fill, acts, *map(b.upload, _tables(op))),
        *(frame, gaussian, scratch, ahead, b.counter(), op.target.size // n),
    )
    # A displacement is that of a whole picture, which one block computes.
    parts = 1 if found else blocks_for(height * width, THREADS, ceil_div(GATHER_BLOCKS, n))
    shown = {"augment": ", ".join(each.kind for each in op.augment)}
    name = ("augment.cu", "gather_augmented", x.dtype)
    # What is drawn; two matrices of doubles and one of integers, sums of channels, two numbers.
    grid, shared = (n, parts), 16 * max(count, 1)
    shared += 20 * channels * (channels + 1) + 4 * channels + 8 if colours else 0
    b.kernel(op, name, grid, (*before, op.step, *behind), shown, shared=shared)
    # In a graph of several steps the next batch is gathered beside this step's update.
    b.early(name, grid, (*before, ahead, *behind), shared)


@binds(MixSamples)
def mix_samples(b: Binder, op: MixSamples) -> None:
    layout = b.geometry.picture(op.y.shape, b.number(op.y))
    n, _, height, width = op.y.shape
    pairs = replace(layout, shape=op.x.shape, stored=(2 * n, *layout.stored[1:]))
    x, y = b.want(op.x, pairs), b.output(op.y, layout)
    channels = layout.stored[1]
    outer, inner = (1, channels) if layout.nhwc else (channels, 1)
    wide = op.target.dtype == "float32"
    places = (n, op.steps, len(op.mixes), DRAWS, outer, height, width, inner)
    frame = b.numbers(*places, op.mixed.shape[1], int(wide))
    key = b.varying(b.live.add(op, ("key",)), lambda op: np.array(op.key, np.uint32))
    last = b.numbers(*last_words(op.mixes), dtype="uint32")
    held = b.upload(tables(op.mixes, height, width))
    ends = (b.words(b.home(op.target)), op.step, y, b.output(op.mixed))
    shown = {"mixes": ", ".join(each.kind for each in op.mixes)}
    kernel = ("mix.cu", "mix_samples", y.dtype)
    b.kernel(op, kernel, (n,), (x, *ends, frame, key, last, held), shown)


@binds(Views)
def views(b: Binder, op: Views) -> None:
    layout = b.geometry.picture(op.y.shape, b.number(op.y))
    n, _, height, width = op.x.shape
    stored = (n, *layout.stored[1:])
    shown = op.y.shape[0] // len(op.views)
    x = b.want(op.x, replace(layout, shape=op.x.shape, stored=stored))
    y = b.output(op.y, layout)
    table = b.numbers(*(value for v in op.views for value in (v.flip, v.down, v.right)))
    channels = stored[1]
    outer, inner = (1, channels) if layout.nhwc else (channels, 1)
    arguments = (x, op.rows, y, table, shown, outer, height, width, inner)
    kernel = ("augment.cu", "views", y.dtype)
    b.kernel(op, kernel, (op.y.shape[0],), arguments, {"views": len(op.views)})


@binds(LeastSure)
def least_sure(b: Binder, op: LeastSure) -> None:
    n, classes = op.scores.shape
    gaps = b.scratch(n, "float32")
    arguments: tuple[Any, ...] = (b.floats(op.scores), op.target, gaps, n, classes)
    b.kernel(op, (SURE, "score_gaps"), n, arguments)
    most = b.numbers(*(share_of(count, op.share) for count in range(n + 1)))
    arguments = (gaps, op.target, b.output(op.place), b.output(op.rows), most, n, op.rows.size)
    b.kernel(op, (SURE, "least_sure"), n, arguments, {"samples": op.rows.size})


@binds(AverageViews)
def average_views(b: Binder, op: AverageViews) -> None:
    weights, count = b.numbers(*op.weights, dtype="float32"), len(op.weights)
    scores = None if op.scores is None else b.floats(op.scores)
    sizes = (count, op.y.size // op.y.shape[0], i64(op.x.size // count), i64(op.y.size))
    arguments = (b.floats(op.x), b.output(op.y), weights, scores, op.place, *sizes)
    b.kernel(op, (SURE, "average_views"), op.y.size, arguments, {"views": count})
