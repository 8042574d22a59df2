"""What ranks do together, in place on the library's buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...graph.ops import AddMetrics, AllGather, AllReduce, KeepMetrics, SkipParts
from ..base import Array, BoundCall
from ..collectives import joined
from .arenas import flats, stretches
from .bind import Binder, binds
from .primitive import Step


def _together(
    b: Binder, op: AllReduce | AllGather, values: Array, does: Callable[[Array], None], name: str
) -> None:
    shown = {"values": f"{values.size} {values.dtype}", "ranks": str(op.ranks)}
    b.steps.append(Step(partial(does, values), (), BoundCall(op, "MPI", name, "", shown)))


@binds(AllReduce)
def all_reduce(b: Binder, op: AllReduce) -> None:
    """One sum for each stretch of an arena: a single one unless some lie apart."""
    if op.ranks == 1:
        for tensor in op.values:
            b.home(tensor)
        return
    ranks = joined(op.ranks)
    for members in stretches(b.store, op.values):
        values = flats(b.store, members, op.values)[0].array()
        _together(b, op, values, ranks.sum, ranks.calls["sum"])


@binds(AllGather)
def all_gather(b: Binder, op: AllGather) -> None:
    held = op.rows
    rows = b.home(held).array(held.shape) if held.dtype == "float32" else b.array(held)
    if op.ranks > 1:
        ranks = joined(op.ranks)
        _together(b, op, rows, ranks.gather, ranks.calls["gather"])


@binds(SkipParts)
def skip_parts(b: Binder, op: SkipParts) -> None:
    step = b.array(op.step)

    def run() -> None:
        step[0] += op.parts

    b.host(op, run, "add")


@binds(KeepMetrics)
def keep_metrics(b: Binder, op: KeepMetrics) -> None:
    step, sums, kept = (b.array(tensor) for tensor in (op.step, op.sums, op.kept))

    def run() -> None:
        kept[int(step[0]) % op.parts] = sums
        sums[:] = 0.0

    b.host(op, run, "copyto")


@binds(AddMetrics)
def add_metrics(b: Binder, op: AddMetrics) -> None:
    kept, sums = b.array(op.kept), b.array(op.sums)

    def run() -> None:
        for row in kept:
            sums[:] += row

    b.host(op, run, "add")
