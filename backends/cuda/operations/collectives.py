"""What ranks do together on their GPUs: NCCL on the stream of the step, captured with it."""

from __future__ import annotations

from collections.abc import Callable

from ....graph.ops import AddMetrics, AllGather, AllReduce, KeepMetrics, SkipParts
from ..binding.bind import Binder, binds
from ..libraries.layout import ceil_div
from ..libraries.nccl import Nccl, connection
from ..libraries.runtime import address_of

FILE = "collectives.cu"


def _together(
    b: Binder,
    op: AllReduce | AllGather,
    function: str,
    does: Callable[[Nccl, int], None],
    count: int,
) -> None:
    """Append a call of NCCL, which is connected when the first is made."""
    stream = b.stream.cuda
    shown = {"values": count, "ranks": op.ranks}
    b.add(op, "NCCL", function, lambda: does(connection(op.ranks), stream.ptr), shown)


@binds(AllReduce)
def all_reduce(b: Binder, op: AllReduce) -> None:
    """ncclAllReduce for two ranks, whose sum has one order.

    For more, whose order would be the library's: every rank gets its share of the values of all,
    adds them up in pairs, and sends the sums to all.
    """
    if op.ranks == 1:
        for tensor in op.values:
            b.home(tensor)
        return
    name, start, stop = b.store.stretch(op.values)
    values, count = b.store.arenas[name][start:stop], stop - start
    if op.ranks == 2:
        at = address_of(values)
        _together(b, op, "ncclAllReduce", lambda nccl, s: nccl.sum(at, count, s), count)
        return
    each = ceil_div(count, op.ranks)
    whole, rows = (b.scratch(each * op.ranks, "float32") for _ in range(2))
    sent, received = address_of(whole), address_of(rows)
    nbytes = 4 * each
    b.kernel(op, (FILE, "copy_floats"), count, (values, whole, count))
    _together(
        b,
        op,
        "ncclSend, ncclRecv",
        lambda nccl, s: nccl.exchange(sent, received, nbytes, s),
        count,
    )
    b.kernel(op, (FILE, "add_in_pairs"), each, (rows, each, op.ranks))
    _together(
        b,
        op,
        "ncclAllGather",
        lambda nccl, s: nccl.gather(received, sent, nbytes, s),
        count,
    )
    b.kernel(op, (FILE, "copy_floats"), count, (whole, values, count))


@binds(AllGather)
def all_gather(b: Binder, op: AllGather) -> None:
    rows = b.home(op.rows)
    if op.ranks == 1:
        return
    at, nbytes = rows.pointer, op.rows.nbytes // op.ranks
    size = op.rows.size
    _together(b, op, "ncclAllGather", lambda nccl, s: nccl.gather_rows(at, nbytes, s), size)


@binds(SkipParts)
def skip_parts(b: Binder, op: SkipParts) -> None:
    b.kernel(op, (FILE, "skip_parts"), (1,), (op.step, op.parts), block=(1,))


@binds(KeepMetrics)
def keep_metrics(b: Binder, op: KeepMetrics) -> None:
    arguments = (op.step, op.sums, op.kept, op.parts)
    b.kernel(op, (FILE, "keep_metrics"), (1,), arguments, block=op.sums.shape)


@binds(AddMetrics)
def add_metrics(b: Binder, op: AddMetrics) -> None:
    arguments = (op.kept, op.sums, op.kept.shape[0])
    b.kernel(op, (FILE, "add_metrics"), (1,), arguments, block=op.sums.shape)
