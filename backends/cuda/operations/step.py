"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graph.graph import Op, Tensor
from ....graph.ops import Advance, ClipByNorm, GatherBatch, GlobalNorm, SgdUpdate
from ....graph.ops.updates import ParameterUpdate
from ...live import Live
from ..binding.bind import Binder, binds
from ..binding.ending import BATCH, NextBatch, last_advance, wanted
from ..binding.launch_list import Varying
from ..binding.slices import Rule, places_of, table_of
from ..binding.store import PARAMETERS, TILE
from ..libraries.kernels import THREADS, blocks_for, f32, i64
from ..libraries.layout import ceil_div
from ..libraries.runtime import address_of
from .step_end import RULE, step_end

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
    ahead = b.zeros(1, "int64")
    sample, channel, _, pixel = layout.strides
    steps = max(order.size // n, 1)
    place = b.numbers(channels, height * width, steps, sample, channel, pixel)
    before = (b.data(op.images), b.data(op.labels), order)
    behind = (x, b.output(op.target), scale, shift, n, place, ahead, b.counter())
    work = channels * height * width // (4 if channels == 1 else 1)
    parts = blocks_for(work, THREADS, ceil_div(GATHER_BLOCKS, n))
    kernel, grid = ("elementwise.cu", "gather_batch", x.dtype), (n, parts)
    b.kernel(op, kernel, grid, (*before, op.step, *behind))
    # In a graph of several steps the next batch is gathered beside this step's update.
    b.early(kernel, grid, (*before, ahead, *behind))
    b.decisions.batch = NextBatch(op.step, before, x, behind[1:4], place, n, work)


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
    _by_factor(b, op, "cublasSscal", gradients.size, factor, gradients)


def _by_factor(b: Binder, op: Op, function: str, n: int, *arrays: Any) -> None:
    """x *= factor, or y += factor x: cuBLAS with device arrays (factor, x) or (factor, x, y)."""
    launch = partial(b.stream.cublas.by_factor, function, n, *map(address_of, arrays))
    b.add(op, "cuBLAS", function, launch, {"n": n})


def rules(b: Binder, op: ParameterUpdate) -> tuple[Any, int, int]:
    """(factor of the rate, weight decay) of every tile from the first parameter to the last.

    Returns the device array and the stretch of the arena; tiles of other parameters get 0.
    """
    table, start, stop = _rules(b, op)
    return b.upload(table), start, stop


def _rules(b: Binder, op: ParameterUpdate) -> tuple[NDArray[np.float32], int, int]:
    _, start, stop = b.store.stretch(op.parameters)
    table = np.zeros(((stop - start) // TILE, 2), "float32")
    for i, parameter in enumerate(op.parameters):
        table[_tiles(b, parameter, start)] = (op.factor(i), op.weight_decay[i])
    return table, start, stop


def _tiles(b: Binder, parameter: Tensor, start: int) -> slice:
    """Those of a parameter in a stretch of the arena."""
    _, first, last = b.store.spans[parameter]
    return slice((first - start) // TILE, (last - start) // TILE)


@binds(SgdUpdate)
def sgd_update(b: Binder, op: SgdUpdate) -> None:
    """One kernel, which also adds up what other kernels left in slices; plain SGD without fusion is
    cublasSscal and cublasSaxpy."""
    simple = not (b.arithmetic.fusion or op.momentum) and len(set(op.weight_decay)) == 1
    simple = simple and {op.factor(i) for i in range(len(op.parameters))} == {1.0}
    _, start, stop = _rules(b, op)
    live = b.live.add(op, ("momentum", "lr_factor", "weight_decay"))
    gathered = sum(last - first for _, first, last in (b.store.spans[p] for p in op.parameters))
    arenas, own = b.store.arenas, slice(start, stop)
    # The mirror of the arena that holds the gradients.
    p, g = arenas[PARAMETERS][own], arenas[b.store.spans[op.gradients[0]][0]][own]
    if simple and not b.store.has_bf16 and gathered == stop - start:
        return _saxpy(b, op, live, p, g)
    v = arenas["momentum"][own] if op.momentum else None
    copy = b.store.bf16_arena()[own] if b.store.has_bf16 else None
    done, advance = None, last_advance(b.graph, op)
    if b.arithmetic.fusion and advance is not None:
        b.decisions.merged.add(advance)
        done = b.counter()
    details: dict[str, object] = {"n": stop - start, "momentum": op.momentum}
    details["nesterov"] = op.nesterov
    sums: tuple[Any, Any, int] = (None, None, 0)
    pending = b.taken(op.gradients) if b.adds_up_itself(op) else []
    tail = b.decisions.tail
    by_gradient = dict(zip(op.gradients, op.parameters, strict=True))
    others = [each.target for each in pending]
    others += [target for target in (tail.targets if tail else ()) if target]

    def table(op: SgdUpdate) -> NDArray[np.float32]:
        found, _, _ = _rules(b, op)
        for target in others:
            found[_tiles(b, by_gradient[target], start)] = 0.0
        return found

    def segments(op: SgdUpdate) -> NDArray[Any]:
        return table_of(pending, _followed(b, op, start))

    def of_tail(op: SgdUpdate) -> NDArray[Any]:
        followed = _followed(b, op, start)
        targets = () if tail is None else tail.targets
        rows = [followed[target] if target else (0, 0.0, 0.0) for target in targets]
        return np.array(rows, RULE)

    if pending:
        where = places_of(pending)
        sums = (b.varying(live, segments), b.upload(where.ravel()), len(where))
        details |= {"sums": len(pending), "slices": max(each.count for each in pending)}
    fours = (stop - start) // 4
    momentum = Varying(live, lambda op: f32(op.momentum))
    rule = (b.data(op.rates), op.step, done, momentum, op.nesterov)
    arguments = (p, g, v, copy, fours, b.varying(live, table), *sums, *rule)
    blocks = sums[2] + ceil_div(fours, THREADS)
    batch = b.decisions.batch if wanted(b.choices, BATCH) and done is not None else None
    if batch is not None and batch.step != op.step:
        batch = None
    if tail is not None or batch is not None:
        rules_of_tail = None if tail is None else b.varying(live, of_tail)
        return step_end(b, op, arguments, blocks, details, (tail, rules_of_tail), batch)
    return b.kernel(op, ("sgd.cu", "sgd_update"), (blocks,), arguments, details)


def _followed(b: Binder, op: SgdUpdate, start: int) -> dict[Tensor, Rule]:
    """By gradient: the parameter's place, its factor of the rate, its weight decay."""
    return {
        gradient: (b.store.spans[parameter][1] - start, op.factor(i), op.weight_decay[i])
        for i, (parameter, gradient) in enumerate(zip(op.parameters, op.gradients, strict=True))
    }


def _saxpy(b: Binder, op: SgdUpdate, live: Live[SgdUpdate], p: Any, g: Any) -> None:
    """p = (1 - lr decay) p - lr g."""
    factors, decay = b.scratch(2, "float32"), op.weight_decay[0]
    own = Varying(live, lambda op: f32(op.weight_decay[0]))
    arguments = (b.data(op.rates), op.step, own, factors)
    b.kernel(op, ("update.cu", "sgd_factors"), (1,), arguments, block=(1,))
    if decay:
        _by_factor(b, op, "cublasSscal", int(p.size), factors[1:], p)
    _by_factor(b, op, "cublasSaxpy", int(p.size), factors, g, p)


@binds(Advance)
def advance(b: Binder, op: Advance) -> None:
    b.kernel(op, ("update.cu", "advance"), (1,), (op.step,), block=(1,))
