"""What ranks do together, in place on the library's buffers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from ...graph import ops
from ..base import Array, BoundCall
from ..collectives import added_in_pairs, joined
from .arenas import by_stretch
from .bind import Binder, binds
from .primitive import Step


def _together(
    b: Binder,
    op: ops.AllReduce | ops.AllGather,
    values: Array,
    does: Callable[[Array], None],
    name: str,
) -> None:
    shown = {"values": f"{values.size} {values.dtype}", "ranks": str(op.ranks)}
    b.steps.append(Step(partial(does, values), (), BoundCall(op, "MPI", name, "", shown)))


@binds(ops.AllReduce)
def all_reduce(b: Binder, op: ops.AllReduce) -> None:
    """One sum for each stretch of an arena: a single one unless some lie apart."""
    if op.ranks == 1:
        for tensor in op.values:
            b.home(tensor)
        return
    ranks = joined(op.ranks)
    for (values,) in by_stretch(b.store, op.values):
        _together(b, op, values.array(), ranks.sum, ranks.calls["sum"])


@binds(ops.AllGather)
def all_gather(b: Binder, op: ops.AllGather) -> None:
    held = op.rows
    rows = b.home(held).array(held.shape) if held.dtype == "float32" else b.array(held)
    if op.ranks > 1:
        ranks = joined(op.ranks)
        _together(b, op, rows, ranks.gather, ranks.calls["gather"])


@binds(ops.KeepMetrics)
def keep_metrics(b: Binder, op: ops.KeepMetrics) -> None:
    step, sums, kept = (b.array(tensor) for tensor in (op.step, op.sums, op.kept))

    def run() -> None:
        kept[int(step[0]) % op.parts] = sums
        sums[:] = 0.0

    b.host(op, run, "copyto")


@binds(ops.AddMetrics)
def add_metrics(b: Binder, op: ops.AddMetrics) -> None:
    kept, sums = b.array(op.kept), b.array(op.sums)

    def run() -> None:
        for row in kept:
            sums[:] += row

    b.host(op, run, "add")


def ends(b: Binder, op: ops.Exchange) -> tuple[Array, Array]:
    """The arrays of both tensors, row-major."""
    (x,), (y,) = op.reads(), op.writes()
    return b.plain(x).array(x.shape), b.output(y).array(y.shape)


def _ends(b: Binder, op: ops.Exchange) -> tuple[Array, Array, bool]:
    """The arrays of both tensors, and whether ranks exchange anything: else y is bound here."""
    source, target = ends(b, op)
    if op.ranks == 1:
        b.host(op, lambda: np.copyto(target, source), "copyto")
    elif op.silent:
        b.host(op, lambda: target.fill(0.0), "fill")
    return source, target, op.ranks > 1 and not op.silent


def sent(b: Binder, op: ops.Exchange, run: Callable[[], None], values: int, does: str) -> None:
    """Append what ranks do together, with the copies around it."""
    shown = {"values": f"{values} float32", "ranks": str(op.ranks)}
    name = joined(op.ranks).calls[does]
    b.steps.append(Step(run, (), BoundCall(op, "MPI", name, "", shown)))


@binds(ops.GatherRows)
def gather_rows(b: Binder, op: ops.GatherRows) -> None:
    x, y, together = _ends(b, op)
    if not together:
        return
    ranks, each = joined(op.ranks), len(x)

    def run() -> None:
        y[ranks.rank * each :][:each] = x
        ranks.gather(y)

    sent(b, op, run, y.size, "gather")


@binds(ops.GatherRowsBackward)
def gather_rows_backward(b: Binder, op: ops.GatherRowsBackward) -> None:
    dy, dx, together = _ends(b, op)
    if not together:
        return
    ranks, received = joined(op.ranks), b.scratch_array((op.ranks, *dx.shape))

    def run() -> None:
        ranks.swap(dy, received)
        dx[...] = added_in_pairs(received)

    sent(b, op, run, dy.size, "swap")


@binds(ops.ExchangeUnitsBackward)
@binds(ops.ExchangeUnits)
def exchange_units(b: Binder, op: ops.ExchangeUnits | ops.ExchangeUnitsBackward) -> None:
    """Blocks by ranks and rows are sent or received, and by rows and ranks on the other side."""
    forward = isinstance(op, ops.ExchangeUnits)
    x, y, together = _ends(b, op)
    if not together:
        return
    ranks, (joint, apart) = joined(op.ranks), (y, x) if forward else (x, y)
    by_ranks = b.scratch_array((op.ranks, len(joint), *apart.shape[1:]))
    by_rows = joint.reshape(len(joint), op.ranks, *apart.shape[1:])

    def run() -> None:
        if forward:
            ranks.swap(x, by_ranks)
            by_rows[...] = by_ranks.swapaxes(0, 1)
        else:
            by_ranks[...] = by_rows.swapaxes(0, 1)
            ranks.swap(by_ranks, y)

    sent(b, op, run, x.size, "swap")


@binds(ops.JoinNorms)
def join_norms(b: Binder, op: ops.JoinNorms) -> None:
    norms, norm = b.plain(op.norms).array(), b.output(op.norm).array()
    own = np.zeros(1, np.float32) if op.own is None else b.plain(op.own).array()

    def run() -> None:
        norm[0] = np.sqrt(np.dot(norms, norms) + np.dot(own, own))

    b.host(op, run, "sqrt")
