"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....graph.ops import Advance, ClipByNorm, GatherBatch, GlobalNorm, SgdUpdate
from ....graph.ops.updates import ParameterUpdate
from ..binding.bind import Binder, binds
from ..binding.store import PARAMETERS, TILE
from ..libraries.kernels import THREADS, f32, i32, i64

PARTIAL_SUMS = 256
# Enough to fill a GPU with blocks that gather.
GATHER_BLOCKS = 1056


@binds(GatherBatch)
def gather_batch(b: Binder, op: GatherBatch) -> None:
    """x: rows of uint8 pictures, scaled and shifted, in the order of this step."""
    n, channels, height, width = op.x.shape
    order = b.data(op.order)
    layout = b.geometry.picture(op.x.shape, b.number(op.x))
    x = b.output(op.x, layout)
    scale, shift = b.numbers(*op.scale, dtype="float32"), b.numbers(*op.shift, dtype="float32")
    step, ahead = b.home(op.step).array, b.keep(b.cupy.zeros(1, "int64"))
    sample, channel, _, pixel = layout.strides
    steps = max(order.size // n, 1)
    place = b.numbers(channels, height * width, steps, sample, channel, pixel)
    before = (b.data(op.images), b.data(op.labels), order)
    behind = (b.output(op.target).array, scale, shift, i32(n), place, ahead, b.counter())
    work = channels * height * width // (4 if channels == 1 else 1)
    parts = max(1, min(-(-work // THREADS), -(-GATHER_BLOCKS // n)))
    kernel, grid = ("elementwise.cu", "gather_batch", x.dtype), (n, parts)
    b.kernel(op, kernel, grid, (*before, step, x.array, *behind))
    # In a graph of several steps the next batch is gathered beside this step's update.
    b.early(kernel, grid, (*before, ahead, x.array, *behind))


@binds(GlobalNorm)
def global_norm(b: Binder, op: GlobalNorm) -> None:
    name, start, stop = b.store.stretch(op.gradients)
    gradients = b.store.arenas[name][start:stop]
    # Between those that are meant, others may lie: sums of what is trained no longer.
    meant = np.zeros((stop - start) // TILE, "uint8")
    for _, first, last in (b.store.spans[g] for g in op.gradients):
        meant[(first - start) // TILE : (last - start) // TILE] = 1
    mask = 0 if meant.all() else b.keep(b.cupy.asarray(meant))
    sums = b.scratch(PARTIAL_SUMS, "float64")
    arguments = (gradients, mask, i64(gradients.size), sums)
    kernel = ("update.cu", "square_sums")
    b.kernel(op, kernel, (PARTIAL_SUMS,), arguments, shared=THREADS * 8)
    norm = b.output(op.norm).array
    b.kernel(
        op,
        ("update.cu", "norm_of"),
        (1,),
        (sums, i32(PARTIAL_SUMS), norm),
        shared=THREADS * 8,
    )


@binds(ClipByNorm)
def clip_by_norm(b: Binder, op: ClipByNorm) -> None:
    """cublasSscal with a factor that is computed on the device."""
    name, start, stop = b.store.stretch(op.gradients)
    gradients = b.store.arenas[name][start:stop]
    factor = b.scratch(1, "float32")
    arguments = (b.home(op.norm).array, f32(op.max_norm), factor)
    b.kernel(op, ("update.cu", "clip_factor"), (1,), arguments, block=(1,))
    scale = partial(
        b.stream.cublas.sscal, gradients.size, int(factor.data.ptr), int(gradients.data.ptr)
    )
    b.add(op, "cuBLAS", "cublasSscal", scale, {"n": gradients.size})


def rules(b: Binder, op: ParameterUpdate) -> tuple[Any, int, int]:
    """(factor of the rate, weight decay) of every tile from the first parameter to the last.

    Returns the device array and the stretch of the arena; tiles of other parameters get 0.
    """
    _, start, stop = b.store.stretch(op.parameters)
    table = np.zeros(((stop - start) // TILE, 2), "float32")
    for i, parameter in enumerate(op.parameters):
        _, first, last = b.store.spans[parameter]
        place = slice((first - start) // TILE, (last - start) // TILE)
        table[place] = (op.factor(i), op.weight_decay[i])
    return b.keep(b.cupy.asarray(table)), start, stop


def gradients_of(b: Binder, op: ParameterUpdate) -> str:
    """The mirror of the arena that holds an update's gradients."""
    return b.store.spans[op.gradients[0]][0]


def own_part(b: Binder, family: str, start: int, stop: int) -> Any:
    """The part of a mirror of the arena that belongs to an update."""
    return b.store.arenas[family][start:stop]


@binds(SgdUpdate)
def sgd_update(b: Binder, op: SgdUpdate) -> None:
    """Plain SGD is cublasSscal and cublasSaxpy; with momentum, groups or copies one kernel."""
    simple = not op.momentum and len(set(op.weight_decay)) == 1
    simple = simple and {op.factor(i) for i in range(len(op.parameters))} == {1.0}
    table, start, stop = rules(b, op)
    gathered = sum(last - first for _, first, last in (b.store.spans[p] for p in op.parameters))
    if simple and not b.store.has_bf16 and gathered == stop - start:
        return _saxpy(b, op, start, stop)
    p = b.store.arenas[PARAMETERS][start:stop]
    g = own_part(b, gradients_of(b, op), start, stop)
    v = own_part(b, "momentum", start, stop) if op.momentum else 0
    copy = b.store.bf16_arena()[start:stop] if b.store.has_bf16 else 0
    done, advance = 0, _last_advance(b, op)
    if b.arithmetic.fusion and advance is not None:
        b.decisions.merged.add(advance)
        done = b.counter()
    fours = (stop - start) // 4
    arguments = (
        *(p, g, v, copy, i32(fours), table, b.data(op.rates), b.home(op.step).array, done),
        *(f32(op.momentum), i32(op.nesterov)),
    )
    details = {"n": stop - start, "momentum": op.momentum, "nesterov": op.nesterov}
    grid = (-(-fours // THREADS),)
    return b.kernel(op, ("update.cu", "sgd_update"), grid, arguments, details)


def _last_advance(b: Binder, op: SgdUpdate) -> Advance | None:
    """The advance of the step, if it and nothing else follows the update."""
    after = b.graph.ops[b.graph.ops.index(op) + 1 :]
    if len(after) == 1 and isinstance(after[0], Advance) and after[0].step == op.step:
        return after[0]
    return None


def _saxpy(b: Binder, op: SgdUpdate, start: int, stop: int) -> None:
    """p = (1 - lr decay) p - lr g."""
    p = b.store.arenas[PARAMETERS][start:stop]
    g = own_part(b, gradients_of(b, op), start, stop)
    factors, decay = b.scratch(2, "float32"), op.weight_decay[0]
    arguments = (b.data(op.rates), b.home(op.step).array, f32(decay), factors)
    b.kernel(op, ("update.cu", "sgd_factors"), (1,), arguments, block=(1,))
    size, target, source = int(p.size), int(p.data.ptr), int(g.data.ptr)
    minus_rate, keep = (int(factors[i : i + 1].data.ptr) for i in (0, 1))
    cublas = b.stream.cublas
    if decay:
        b.add(op, "cuBLAS", "cublasSscal", partial(cublas.sscal, size, keep, target), {"n": size})
    launch = partial(cublas.saxpy, size, minus_rate, source, target)
    b.add(op, "cuBLAS", "cublasSaxpy", launch, {"n": size})


@binds(Advance)
def advance(b: Binder, op: Advance) -> None:
    arguments = (b.home(op.step).array,)
    b.kernel(op, ("update.cu", "advance"), (1,), arguments, block=(1,))
