"""What ranks do together on their GPUs: NCCL, or each other's memory, captured with the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ....graph import ops
from ....graph.graph import Op, Tensor
from ..binding.bind import KERNELS, Binder, binds
from ..binding.buffer import Buffer
from ..binding.small_sums import SmallSum, Stretch, fits, kernels_of, size_of
from ..libraries.kernels import f32
from ..libraries.layout import ceil_div
from ..libraries.nccl import Nccl, connection
from ..libraries.runtime import address_of
from .peers import sum_in_memory

FILE = "collectives.cu"
SENDS = "ncclSend, ncclRecv"


def together(
    b: Binder,
    op: ops.AllReduce | ops.AllGather | ops.Banded | ops.Exchange,
    function: str,
    does: Callable[[Nccl, int], None],
    count: int,
) -> None:
    """Append a call of NCCL, which is connected when the first is made."""
    stream = b.stream.cuda
    shown = {"values": count, "ranks": op.ranks}
    b.add(op, "NCCL", function, lambda: does(connection(op.ranks), stream.ptr), shown)


@binds(ops.AllReduce)
def all_reduce(b: Binder, op: ops.AllReduce) -> None:
    """Small sums are added up in each other's memory; others by ncclAllReduce for two ranks, whose
    sum has one order, or where ``run.deterministic`` is false.

    For more, whose order would be the library's: every rank gets its share of the values of all,
    adds them up in pairs, and sends the sums to all. A small sum may be left to the update.
    """
    if op.ranks == 1:
        for tensor in op.values:
            b.home(tensor)
        return
    small = b.store.small_sums.of(op)
    if small is not None and small.update is not None and b.arithmetic.fusion:
        return
    for stretches in kernels_of(b.store.spans, op):
        if fits(op.ranks, size_of(stretches)):
            does = small or SmallSum(op)
            otherwise = b.aside(partial(by_nccl, b, does, stretches))
            sum_in_memory(b, does, stretches, otherwise)
        else:
            ((name, start, stop),) = stretches
            _sum(b, op, b.store.arenas[name][start:stop], stop - start)
        small = None


def by_nccl(b: Binder, small: SmallSum, stretches: Sequence[Stretch]) -> None:
    """What the kernel of a small sum does, by NCCL and one launch for each operation."""
    ending, metrics = small.ending, small.metrics
    if ending is not None:
        for name, start, stop in stretches:
            source, values = (b.store.arenas[each][start:stop] for each in (ending.gradients, name))
            arguments = (source, values, stop - start, f32(ending.accumulate.scale))
            b.kernel(ending.accumulate, (FILE, "scale_floats"), stop - start, arguments)
        for op in ending.operations[1:]:
            KERNELS.of(op)(b, op)
    if metrics is not None:
        _gather(b, metrics.gather)
        add_metrics(b, metrics.add)
        skip_parts(b, metrics.skip)
    for name, start, stop in stretches:
        _sum(b, small.op, b.store.arenas[name][start:stop], stop - start)


def _sum(b: Binder, op: ops.AllReduce, values: Any, count: int) -> None:
    """Add up the values of all ranks, in place."""
    if op.ranks == 2 or not b.arithmetic.deterministic:
        at = address_of(values)
        together(b, op, "ncclAllReduce", lambda nccl, s: nccl.sum(at, count, s), count)
        return
    each = ceil_div(count, op.ranks)
    whole, rows = (b.scratch(each * op.ranks, "float32") for _ in range(2))
    sent, received = address_of(whole), address_of(rows)
    nbytes = 4 * each
    b.kernel(op, (FILE, "copy_floats"), count, (values, whole, count))
    together(b, op, SENDS, lambda nccl, s: nccl.exchange(sent, received, nbytes, s), count)
    b.kernel(op, (FILE, "add_in_pairs"), each, (rows, each, op.ranks))
    together(b, op, "ncclAllGather", lambda nccl, s: nccl.gather(received, sent, nbytes, s), count)
    b.kernel(op, (FILE, "copy_floats"), count, (whole, values, count))


@binds(ops.AllGather)
def all_gather(b: Binder, op: ops.AllGather) -> None:
    b.home(op.rows)
    if op.ranks > 1:
        _gather(b, op)


def _gather(b: Binder, op: ops.AllGather) -> None:
    rows = b.home(op.rows)
    at, nbytes = rows.pointer, op.rows.nbytes // op.ranks
    size = op.rows.size
    together(b, op, "ncclAllGather", lambda nccl, s: nccl.gather_rows(at, nbytes, s), size)


@binds(ops.SkipParts)
def skip_parts(b: Binder, op: ops.SkipParts) -> None:
    b.kernel(op, (FILE, "skip_parts"), (1,), (op.step, op.parts), block=(1,))


@binds(ops.KeepMetrics)
def keep_metrics(b: Binder, op: ops.KeepMetrics) -> None:
    arguments = (op.step, op.sums, op.kept, op.parts)
    b.kernel(op, (FILE, "keep_metrics"), (1,), arguments, block=op.sums.shape)


@binds(ops.AddMetrics)
def add_metrics(b: Binder, op: ops.AddMetrics) -> None:
    arguments = (op.kept, op.sums, op.kept.shape[0])
    b.kernel(op, (FILE, "add_metrics"), (1,), arguments, block=op.sums.shape)


def _ends(b: Binder, op: ops.Exchange, x: Tensor, y: Tensor) -> tuple[Buffer, Buffer, bool]:
    """The buffers of both tensors, and whether ranks exchange anything: else y is bound here."""
    source, target = b.floats(x), b.output(y)
    if op.ranks == 1:
        b.kernel(op, (FILE, "copy_floats"), x.size, (source, target, x.size))
    return source, target, op.ranks > 1 and not op.silent


def _swap(b: Binder, op: ops.Exchange, sent: int, received: int, count: int) -> None:
    """Send every rank its share, and receive this rank's of all."""
    nbytes = 4 * count // op.ranks
    together(b, op, SENDS, lambda nccl, s: nccl.exchange(sent, received, nbytes, s), count)


def _swap_axes(
    b: Binder, op: Op, source: Any, target: Any, rows: int, columns: int, n: int
) -> None:
    """Turn (rows, columns, each) into (columns, rows, each), n numbers in all."""
    arguments = (source, target, rows, columns, n // (rows * columns))
    b.kernel(op, (FILE, "swap_axes"), n, arguments)


@binds(ops.GatherRows)
def gather_rows(b: Binder, op: ops.GatherRows) -> None:
    x, y, together = _ends(b, op, op.x, op.y)
    if together:
        gather_from(b, op, x.pointer, y.pointer, op.x)


def gather_from(b: Binder, op: ops.Exchange, mine: int, rows: int, x: Tensor) -> None:
    """Gather what all ranks have of a tensor, each at its address ``mine``."""
    count, nbytes = x.size * op.ranks, x.nbytes
    together(b, op, "ncclAllGather", lambda nccl, s: nccl.gather(mine, rows, nbytes, s), count)


@binds(ops.GatherRowsBackward)
def gather_rows_backward(b: Binder, op: ops.GatherRowsBackward) -> None:
    dy, dx, together = _ends(b, op, op.dy, op.dx)
    if not together:
        return
    each = op.dx.size
    received = b.scratch(op.dy.size, "float32")
    _swap(b, op, dy.pointer, address_of(received), op.dy.size)
    b.kernel(op, (FILE, "add_in_pairs"), each, (received, each, op.ranks))
    b.kernel(op, (FILE, "copy_floats"), each, (received, dx, each))


@binds(ops.ExchangeUnits)
def exchange_units(b: Binder, op: ops.ExchangeUnits) -> None:
    x, y, together = _ends(b, op, op.x, op.y)
    if together:
        received = b.scratch(op.x.size, "float32")
        _swap(b, op, x.pointer, address_of(received), op.x.size)
        _swap_axes(b, op, received, y, op.ranks, op.y.shape[0], op.x.size)


@binds(ops.ExchangeUnitsBackward)
def exchange_units_backward(b: Binder, op: ops.ExchangeUnitsBackward) -> None:
    dy, dx, together = _ends(b, op, op.dy, op.dx)
    if together:
        sent = b.scratch(op.dy.size, "float32")
        _swap_axes(b, op, dy, sent, op.dy.shape[0], op.ranks, op.dy.size)
        _swap(b, op, address_of(sent), dx.pointer, op.dy.size)


@binds(ops.JoinNorms)
def join_norms(b: Binder, op: ops.JoinNorms) -> None:
    own = op.norms if op.own is None else op.own
    arguments = (b.floats(op.norms), op.norms.size, b.floats(own), int(op.own is not None))
    b.kernel(op, (FILE, "join_norms"), (1,), (*arguments, b.output(op.norm)), block=(1,))
