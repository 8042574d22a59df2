"""The end of a step of ranks in one launch: their sum, the update by SGD, the next part."""

from __future__ import annotations

from collections.abc import Callable

from ....graph.ops import SgdUpdate
from ...collectives import number
from ..binding.bind import Binder
from ..binding.ending import Update
from ..binding.small_sums import SmallSum, kernels_of, size_of
from ..libraries.kernels import THREADS
from ..libraries.layout import FLOAT, ceil_div
from ..libraries.peers import BLOCKS, FEW
from .collectives import by_nccl
from .peers import Reached, summing

FUNCTION = "ranks_end"


def ranks_end(
    b: Binder, op: SgdUpdate, small: SmallSum, update: Update, alone: Callable[[], None]
) -> None:
    """Launch an update with the sum over ranks that it waits for, and what that takes along.

    Where another step follows, also with the part that this rank computes then. ``alone``: appends
    the update without the sum, for ranks that cannot reach each other's memory.
    """
    assert small.metrics is not None
    ranks, step = small.op.ranks, small.metrics.skip.step
    (stretches,) = kernels_of(b.store.spans, small.op)
    reached, sums = Reached(b, ranks, stretches), summing(b, small, stretches)
    batch = b.store.batches.get(step)
    samples, gathers, given = (1, 0, (*[None] * 7, 0, 1, None)) if batch is None else batch.given()
    place = (stretches[0][1] - update.start) // 4
    summed = (place, update.table([g for g in op.gradients if g not in small.op.values]))
    rest = update.table(small.op.values)
    first = number(ranks)
    every = small.metrics.gather.rows.shape[0]
    head = (*sums.numbers, reached.memory, first, 0, *sums.metrics, *summed)
    body = (*head, *update.arrays, update.fours, rest, *update.rule, *given, every, first)
    dtype = FLOAT if batch is None else batch.x.dtype
    numbers = {**reached.defines, "WORKERS": BLOCKS, "SAMPLES": samples}
    numbers["LINES"] = int(4 * size_of(stretches) <= FEW)
    along = [str(sums.shown["with"]), small.op.label()]
    along += [] if batch is None else ["GatherBatch of the next part"]
    shown = {**update.details, **sums.shown, "with": ", ".join(along)}
    blocks = BLOCKS + 1 + ceil_div(update.fours, THREADS)

    def nccl(again: bool) -> None:
        by_nccl(b, small, stretches)
        alone()
        if again and batch is not None:
            batch.alone(b)

    def launch(more: int) -> None:
        wrap = reached.otherwise(b.aside(lambda: nccl(more > 0)))
        kernel = (f"{FUNCTION}.cu", FUNCTION, dtype)
        fixed = tuple(sorted(numbers.items()))
        b.kernel(op, kernel, (blocks + more,), (*body, more), shown, defines=fixed, wrap=wrap)

    launch(0)
    if batch is not None:
        b.decisions.batch = batch
        b.joined(lambda: launch(gathers))
