"""The update by SGD, with slices, a classifier's last gradients and the next batch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....graph.graph import Tensor
from ....graph.ops import SgdUpdate
from ...live import Live
from ..binding.at_once import gap
from ..binding.bind import Binder, binds
from ..binding.ending import (
    BATCH,
    NextBatch,
    TailGradients,
    Update,
    WeightProduct,
    last_advance,
    wanted,
)
from ..binding.launch_list import Varying
from ..binding.slices import Rule, places_of, table_of
from ..binding.store import PARAMETERS, TILE
from ..libraries.kernels import THREADS, f32, u32
from ..libraries.layout import FLOAT, ceil_div
from .ranks_end import ranks_end
from .step import by_factor

STEP_END = "step_end"
# struct TailRule of step_end.cu.
RULE = "i4,f4,f4"
# Columns and rows that a block of THREADS sums at once, and rows that a thread asks for at once.
SPAN, LINES = 4, 64
ROWS, FEW_CLASSES = 2, 12


@binds(SgdUpdate)
def sgd_update(b: Binder, op: SgdUpdate) -> None:
    """One kernel, which also adds up what other kernels left in slices; plain SGD without fusion,
    momentum and weight decay is cublasSaxpy."""
    _, start, stop = b.store.stretch(op.parameters)
    live = b.live.add(op, ("momentum", "lr_factor", "weight_decay"))
    arenas, own = b.store.arenas, slice(start, stop)
    # The mirror of the arena that holds the gradients.
    p, g = arenas[PARAMETERS][own], arenas[b.store.spans[op.gradients[0]][0]][own]
    if _is_simple(b, op, stop - start):
        return _saxpy(b, op, p, g)
    v = arenas["momentum"][own] if op.momentum else None
    copy = b.store.bf16_arena()[own] if b.store.has_bf16 else None
    done, advance = None, last_advance(b.graph, op)
    if b.arithmetic.fusion and advance is not None:
        b.decisions.merged.add(id(advance))
        done = b.counter()
    details: dict[str, object] = {"n": stop - start, "momentum": op.momentum}
    details["nesterov"] = op.nesterov

    def table(others: Collection[Tensor]) -> Any:
        return b.varying(live, lambda op: _table(b, op, start, stop, others))

    momentum = Varying(live, lambda op: f32(op.momentum))
    rule = (b.data(op.rates), op.step, done, momentum, op.nesterov)
    update = Update((p, g, v, copy), start, (stop - start) // 4, rule, table, details)
    small = b.store.small_sums.before(op) if b.arithmetic.fusion else None
    if small is None:
        return _alone(b, op, live, update)
    return ranks_end(b, op, small, update, lambda: _alone(b, op, live, update))


def _alone(b: Binder, op: SgdUpdate, live: Live[SgdUpdate], update: Update) -> None:
    """Launch an update that waits for no other rank."""
    pending = b.taken(op.gradients) if b.adds_up_itself(op) else []
    # What ends a step belongs to its last update.
    ends = last_advance(b.graph, op) is not None
    tail, weights = (b.decisions.tail, b.decisions.weights) if ends else (None, None)
    batch = _next_batch(b, op) if ends else None
    start, details = update.start, update.details
    sums: tuple[Any, Any, int] = (None, None, 0)
    if pending:
        where = places_of(pending)
        segments = b.varying(live, lambda op: table_of(pending, _followed(b, op, start)))
        sums = (segments, b.upload(where.ravel()), len(where))
        details |= {"sums": len(pending), "slices": max(each.count for each in pending)}
    others = {*(each.target for each in pending), *filter(None, tail.targets if tail else ())}
    place = gaps = 0
    if weights is not None:
        first, last = weights.span
        others.add(weights.op.c)
        place, gaps = gap(first - start, last - start, 4 * THREADS)
    given, behind = (*update.arrays, update.fours), (update.table(others), *sums, *update.rule)
    blocks = sums[2] + ceil_div(update.fours, THREADS) - gaps
    if tail is None and batch is None and weights is None:
        return b.kernel(op, ("sgd.cu", "sgd_update"), (blocks,), (*given, *behind), details)

    def of_tail(op: SgdUpdate) -> NDArray[Any]:
        followed = _followed(b, op, start)
        targets = () if tail is None else tail.targets
        return np.array([followed[t] if t else (0, 0.0, 0.0) for t in targets], RULE)

    rules = None if tail is None else b.varying(live, of_tail)
    if weights is not None and batch is None and _is_overwritten(b, weights):
        b.forget_early()
    along = Along(tail, rules, weights, start, batch)
    return _with_more(b, op, (*given, place, gaps, *behind), blocks, details, along)


def _table(
    b: Binder, op: SgdUpdate, start: int, stop: int, others: Collection[Tensor]
) -> NDArray[np.float32]:
    """(factor of the rate, weight decay) of every tile; 0 of those that others follow."""
    found = np.zeros(((stop - start) // TILE, 2), "float32")
    left_out = set(others)
    for i, parameter in enumerate(op.parameters):
        if op.gradients[i] not in left_out:
            _, first, last = b.store.spans[parameter]
            tiles = slice((first - start) // TILE, (last - start) // TILE)
            found[tiles] = (op.factor(i), op.weight_decay[i])
    return found


def _is_simple(b: Binder, op: SgdUpdate, size: int) -> bool:
    """Whether a call of cuBLAS does it: without fusion, of a whole arena alike. A decay takes the
    kernel: the factor 1 - lr decay of a cublasSscal would round a small one away."""
    if b.arithmetic.fusion or op.momentum or b.store.has_bf16 or any(op.weight_decay):
        return False
    spans = (b.store.spans[parameter] for parameter in op.parameters)
    covered = sum(last - first for _, first, last in spans)
    return covered == size and {op.factor(i) for i in range(len(op.parameters))} == {1.0}


def _next_batch(b: Binder, op: SgdUpdate) -> NextBatch | None:
    """What the kernel gathers, if it may: where nothing but the step's advance follows it."""
    batch, tail = b.decisions.batch, b.decisions.tail
    if batch is None or not wanted(b.choices, BATCH) or not b.arithmetic.fusion:
        return None
    if batch.step != op.step:
        return None
    # The kernel knows one type of activations.
    others = (each.dtype for each in (tail, b.decisions.weights) if each is not None)
    return batch if all(dtype == batch.x.dtype for dtype in others) else None


def _is_overwritten(b: Binder, weights: WeightProduct) -> bool:
    """Whether what is gathered beside the update takes the place of what that still reads."""
    op = b.early_op()
    written = [] if op is None else [b.home(tensor).pointer for tensor in op.writes()]
    return weights.right.pointer in written


def _followed(b: Binder, op: SgdUpdate, start: int) -> dict[Tensor, Rule]:
    """By gradient: the parameter's place, its factor of the rate, its weight decay."""
    return {
        gradient: (b.store.spans[parameter][1] - start, op.factor(i), op.weight_decay[i])
        for i, (parameter, gradient) in enumerate(zip(op.parameters, op.gradients, strict=True))
    }


def _saxpy(b: Binder, op: SgdUpdate, p: Any, g: Any) -> None:
    """p -= lr g."""
    factor = b.scratch(1, "float32")
    b.kernel(op, ("update.cu", "sgd_factor"), (1,), (b.data(op.rates), op.step, factor), block=(1,))
    by_factor(b, op, "cublasSaxpy", int(p.size), factor, g, p)


class Along(NamedTuple):
    """What a launch of the update takes along. ``rules``: those of the tail's targets, on the
    device; ``start``: where the parameters of the update begin in their arena."""

    tail: TailGradients | None
    rules: Any
    weights: WeightProduct | None
    start: int
    batch: NextBatch | None


def _with_more(
    b: Binder,
    op: SgdUpdate,
    update: Sequence[Any],
    blocks: int,
    details: dict[str, object],
    along: Along,
) -> None:
    """Launch the update with what it takes along; the batch only if another step follows.

    update: what sgd_update is given, and the gap of the product's weights.
    """
    tail, weights, batch = along.tail, along.weights, along.batch
    # A tail's first kernel, which lies between two updates, tells after it has waited.
    defines = {"TAIL": int(tail is not None), "PRODUCT": int(weights is not None)}
    defines |= {"SAMPLES": 1, "EARLY": int(tail is not None)}
    # What the kernel is given for what it does not take along.
    of_tail: tuple[Any, ...] = (*[None] * 9, 0, None, None, 0, 0)
    given: tuple[Any, ...] = (*[None] * 7, 0, 1, None)
    product: tuple[Any, ...] = (*[None] * 3, 0, 1, 0, None, u32(0))
    shared, gathers, named = 0, 0, []
    if tail is not None:
        defines |= dict(tail.defines) | {"SPAN": SPAN, "LINES": LINES}
        defines["TAIL_ROWS"] = ROWS if defines["CLASSES"] <= FEW_CLASSES else 1
        tails = ceil_div(tail.columns, SPAN) + 2
        outs = [target and b.output(target) for target in tail.targets]
        of_tail = (*tail.given, *outs, along.rules, *tail.rest, tails)
        blocks += tails
        named.append(tail.op.label())
    if batch is not None:
        defines["SAMPLES"], gathers, given = batch.given()
        named.append("GatherBatch of the next step")
    if weights is not None:
        defines |= dict(weights.defines)
        # The next batch may take the place of what the product reads.
        meet = batch is not None and batch.x.pointer == weights.right.pointer
        place, awaited = weights.span[0] - along.start, weights.blocks if meet else 0
        sizes = (place, weights.across, weights.blocks)
        product = (*weights.given, *sizes, b.counter() if meet else None, u32(awaited))
        blocks, shared = blocks + weights.blocks, weights.shared
        named.append(weights.op.label())
    dtypes = [each.dtype for each in (tail, weights) if each is not None]
    dtypes += [batch.x.dtype] if batch is not None else []
    if len({*dtypes}) > 1:
        raise ValueError(f"{STEP_END}, {op.label()}: the tuning's parts have types of their own")
    kernel = (f"{STEP_END}.cu", STEP_END, dtypes[0] if dtypes else FLOAT)
    shown = {**details, "with": ", ".join(named)}
    fixed = tuple(sorted(defines.items()))

    def launch(more: int) -> None:
        grid, arguments = (blocks + more,), (*update, *of_tail, *given, *product, more)
        b.kernel(op, kernel, grid, arguments, shown, shared=shared, defines=fixed)

    launch(0)
    if batch is not None:
        b.joined(lambda: launch(gathers))
