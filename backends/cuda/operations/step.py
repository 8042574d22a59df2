"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.graph import Op
from ....graph.ops import Advance, ClipByNorm, GatherBatch, GlobalNorm
from ..binding.bind import Binder, binds
from ..binding.ending import NextBatch
from ..binding.store import TILE
from ..libraries.kernels import THREADS, blocks_for, f32, i64
from ..libraries.layout import ceil_div
from ..libraries.runtime import address_of

PARTIAL_SUMS = 256
# Enough to fill a GPU with blocks that gather.
GATHER_BLOCKS = 1056


@binds(GatherBatch)
def gather_batch(b: Binder, op: GatherBatch) -> None:
    """x: rows of pictures, scaled and shifted, in the order of this step.

    The update takes along the batch of the next step only of bytes and classes.
    """
    n, channels, height, width = op.x.shape
    order = b.data(op.order)
    layout = b.geometry.picture(op.x.shape, b.number(op.x))
    x = b.output(op.x, layout)
    floats, words = op.images.dtype == "float32", op.target.size // n
    wide = floats or op.target.dtype == "float32"
    # x - 0 is x, but -0 + 0 is 0.
    shifts = [each or -0.0 for each in op.shift] if floats else op.shift
    scale, shift = b.numbers(*op.scale, dtype="float32"), b.numbers(*shifts, dtype="float32")
    ahead = b.zeros(1, "int64")
    sample, channel, _, pixel = layout.strides
    steps = max(order.size // n, 1)
    place = b.numbers(channels, height * width, steps, sample, channel, pixel)
    before = (b.data(op.images), b.words(b.data(op.labels)), order)
    behind: tuple[Any, ...] = (
        x,
        b.words(b.output(op.target)),
        scale,
        shift,
        n,
        place,
        ahead,
        b.counter(),
    )
    behind += (words,) if wide else ()
    work = channels * height * width // (4 if channels == 1 else 1)
    parts = blocks_for(work, THREADS, ceil_div(GATHER_BLOCKS, n))
    name = "gather_floats" if floats else "gather_wide" if wide else "gather_batch"
    kernel, grid = ("elementwise.cu", name, x.dtype), (n, parts)

    def alone(binder: Binder) -> None:
        binder.kernel(op, kernel, grid, (*before, op.step, *behind))

    alone(b)
    # In a graph of several steps the next batch is gathered beside this step's update.
    b.early(kernel, grid, (*before, ahead, *behind))
    if wide:
        return
    batch = NextBatch(op.step, before, x, behind[1:4], place, n, work, alone)
    b.decisions.batch = b.store.batches[op.step] = batch


@binds(GlobalNorm)
def global_norm(b: Binder, op: GlobalNorm) -> None:
    name, start, stop = b.store.stretch(op.gradients)
    gradients = b.store.arenas[name][start:stop]
    # Between those that are meant, others may lie: sums of what is trained no longer.
    meant = np.zeros((stop - start) // TILE, "uint8")
    for _, first, last in (b.store.spans[g] for g in op.gradients):
        meant[(first - start) // TILE : (last - start) // TILE] = 1
    mask = None if meant.all() else b.upload(meant)
    sums = b.scratch(PARTIAL_SUMS, "float64")
    arguments = (gradients, mask, i64(gradients.size), sums)
    kernel, shared = ("update.cu", "square_sums"), THREADS * 8
    b.kernel(op, kernel, (PARTIAL_SUMS,), arguments, shared=shared)
    ends = (sums, PARTIAL_SUMS, b.output(op.norm))
    b.kernel(op, ("update.cu", "norm_of"), (1,), ends, shared=shared)


@binds(ClipByNorm)
def clip_by_norm(b: Binder, op: ClipByNorm) -> None:
    """cublasSscal with a factor that is computed on the device."""
    name, start, stop = b.store.stretch(op.gradients)
    gradients = b.store.arenas[name][start:stop]
    factor = b.scratch(1, "float32")
    arguments = (op.norm, f32(op.max_norm), factor)
    b.kernel(op, ("update.cu", "clip_factor"), (1,), arguments, block=(1,))
    by_factor(b, op, "cublasSscal", gradients.size, factor, gradients)


def by_factor(b: Binder, op: Op, function: str, n: int, *arrays: Any) -> None:
    """x *= factor, or y += factor x: cuBLAS with device arrays (factor, x) or (factor, x, y)."""
    launch = partial(b.stream.cublas.by_factor, function, n, *map(address_of, arrays))
    b.add(op, "cuBLAS", function, launch, {"n": n})


@binds(Advance)
def advance(b: Binder, op: Advance) -> None:
    b.kernel(op, ("update.cu", "advance"), (1,), (op.step,), block=(1,))
