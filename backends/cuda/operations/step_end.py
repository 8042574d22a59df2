"""The update by SGD with what it takes along: a classifier's last gradients, the next batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph.ops import SgdUpdate
from ..binding.bind import Binder
from ..binding.ending import NextBatch, TailGradients
from ..libraries.kernels import THREADS
from ..libraries.layout import FLOAT, ceil_div

FILE, NAME = "step_end.cu", "step_end"
# struct TailRule of step_end.cu.
RULE = "i4,f4,f4"
# Columns and rows that a block of THREADS sums at once, and rows that a thread asks for at once.
SPAN, LINES = 4, 64
ROWS, FEW_CLASSES = 2, 12
# Samples of a block where each takes few loads, and blocks of the others together.
FEW_LOADS, SAMPLES, GATHER_BLOCKS = 256, 4, 264


def step_end(
    b: Binder,
    op: SgdUpdate,
    update: Sequence[Any],
    blocks: int,
    details: dict[str, object],
    tail: tuple[TailGradients | None, Any],
    batch: NextBatch | None,
) -> None:
    """Launch the update with what it takes along; the batch only if another step follows.

    update: what sgd_update is given; tail: with the rules of its targets, on the device.
    """
    found, rules = tail
    if found is not None and batch is not None and batch.x.dtype != found.dtype:
        batch = None
    defines = {"TAIL": int(found is not None), "SAMPLES": 1}
    # What the kernel is given for a tail and for a batch that it does not take along.
    of_tail: tuple[Any, ...] = (*[None] * 9, 0, None, None, 0, 0)
    given: tuple[Any, ...] = (*[None] * 7, 0, 1, None)
    gathers, along = 0, []
    if found is not None:
        defines |= dict(found.defines) | {"SPAN": SPAN, "LINES": LINES}
        defines["TAIL_ROWS"] = ROWS if defines["CLASSES"] <= FEW_CLASSES else 1
        tails = ceil_div(found.columns, SPAN) + 2
        outs = [target and b.output(target) for target in found.targets]
        of_tail = (*found.given, *outs, rules, *found.rest, tails)
        blocks += tails
        along.append(found.op.label())
    if batch is not None:
        if batch.work <= FEW_LOADS:
            defines["SAMPLES"] = SAMPLES
        samples = ceil_div(batch.samples, defines["SAMPLES"])
        parts = max(1, min(GATHER_BLOCKS // samples, ceil_div(batch.work, THREADS)))
        gathers = samples * parts
        given = (*batch.before, batch.x, *batch.behind, batch.samples, parts, batch.place)
        along.append("GatherBatch of the next step")
    dtype = found.dtype if found is not None else FLOAT if batch is None else batch.x.dtype
    kernel = (FILE, NAME, dtype)
    shown = {**details, "with": ", ".join(along)}
    fixed = tuple(sorted(defines.items()))

    def launch(more: int) -> None:
        grid = (blocks + more,)
        b.kernel(op, kernel, grid, (*update, *of_tail, *given, more), shown, defines=fixed)

    launch(0)
    if batch is not None:
        b.joined(lambda: launch(gathers))
