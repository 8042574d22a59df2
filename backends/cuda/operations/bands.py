"""Bands of rows of pictures on several GPUs, row-major: NCCL sends what lies side by side."""

from __future__ import annotations

from typing import Any

from ....common.errors import BackendUnavailableError
from ....graph.ops import Banded, GatherBands, HaloExchange, HaloExchangeBackward, TakeBand
from ...collectives import joined
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..libraries.kernels import f32
from ..libraries.runtime import address_of
from .collectives import FILE, SENDS, gather_from, together

Piece = tuple[int, int, int]


def _number(ranks: int) -> int:
    """The number of this rank; of the first where memory is counted alone."""
    try:
        return joined(ranks).rank if ranks > 1 else 0
    except BackendUnavailableError:
        return 0


class _Rows:
    """Moves rows of planes, which are (planes, rows, width) in every array."""

    def __init__(self, b: Binder, op: HaloExchange | Banded | GatherBands | TakeBand) -> None:
        self._b, self._op = b, op
        n, channels, _, self._width = op.reads()[0].shape
        self._planes = n * channels
        self.row = self._planes * self._width

    def fill(self, y: Buffer, rows: int, value: float) -> None:
        count = rows * self.row
        self._b.kernel(self._op, (FILE, "fill_floats"), count, (y, count, f32(value)))

    def move(
        self,
        source: Any,
        target: Any,
        of: tuple[int, int],
        to: tuple[int, int],
        rows: int,
        add: bool = False,
    ) -> None:
        """of, to: the rows of an array, and the first of those that are moved."""
        if rows:
            shape = (self._planes, rows, self._width)
            arguments = (source, target, *shape, *of, *to, int(add))
            self._b.kernel(self._op, (FILE, "move_rows"), rows * self.row, arguments)


def _room(op: Banded, row: int) -> tuple[int, int]:
    """The most that a rank sends and receives, in numbers, of the way forward."""
    ranks = range(op.ranks)
    every = [[op.piece(a, b)[2] if a != b else 0 for b in ranks] for a in ranks]
    return row * max(map(sum, every)), row * max(map(sum, zip(*every, strict=True)))


def _exchange(b: Binder, op: Banded, source: Buffer, target: Buffer, back: bool) -> None:
    """Send rows of ``source``, receive those of ``target``; ``back``: which is the band."""
    rows, own = _Rows(b, op), _number(op.ranks)
    others = [rank for rank in range(op.ranks) if rank != own]
    sizes, room = (op.band.shape[2], op.window.shape[2]), _room(op, rows.row)
    if back:
        sizes, room = sizes[::-1], room[::-1]
    out, into = (b.scratch(max(n, 1), "float32") for n in room)

    def piece(sender: int, receiver: int) -> Piece:
        """The first row at the sender, that at the receiver, and the number of rows."""
        first, at, count = op.piece(*((receiver, sender) if back else (sender, receiver)))
        return (at, first, count) if back else (first, at, count)

    counts, found, begin = [0] * op.ranks, [0] * op.ranks, 0
    for rank in others:
        first, _, count = piece(own, rank)
        rows.move(source, out[begin:], (sizes[0], first), (count, 0), count)
        counts[rank], begin = rows.row * count, begin + rows.row * count
        found[rank] = rows.row * piece(rank, own)[2]
    if others:
        ends = address_of(out), counts, address_of(into), found
        together(b, op, SENDS, lambda nccl, s: nccl.trade(*ends, s), sum(counts))
    begin = 0
    for rank in range(op.ranks):
        first, at, count = piece(rank, own)
        to = sizes[1], at
        if rank == own:
            rows.move(source, target, (sizes[0], first), to, count, back)
            continue
        rows.move(into[begin:], target, (count, 0), to, count, back)
        begin += rows.row * count


@binds(HaloExchange)
def halo_exchange(b: Binder, op: HaloExchange) -> None:
    x, y = b.floats(op.x), b.output(op.y)
    if not op.silent:
        _Rows(b, op).fill(y, op.y.shape[2], op.fill)
        _exchange(b, op, x, y, back=False)


@binds(HaloExchangeBackward)
def halo_exchange_backward(b: Binder, op: HaloExchangeBackward) -> None:
    dy, dx = b.floats(op.dy), b.output(op.dx)
    if not op.silent:
        _Rows(b, op).fill(dx, op.dx.shape[2], 0.0)
        _exchange(b, op, dy, dx, back=True)


@binds(GatherBands)
def gather_bands(b: Binder, op: GatherBands) -> None:
    x, y = b.floats(op.x), b.output(op.y)
    if op.silent:
        return
    rows, each, whole = _Rows(b, op), op.x.shape[2], op.y.shape[2]
    every: Any = x
    if op.ranks > 1:
        every = b.scratch(op.x.size * op.ranks, "float32")
        gather_from(b, op, x.pointer, address_of(every), op.x)
    for rank in range(op.ranks):
        count = max(min(each, whole - rank * each), 0)
        source = every[rank * op.x.size :] if op.ranks > 1 else every
        rows.move(source, y, (each, 0), (whole, rank * each), count)


@binds(TakeBand)
def take_band(b: Binder, op: TakeBand) -> None:
    x, y = b.floats(op.x), b.output(op.y)
    if op.silent:
        return
    rows, (first, at, count) = _Rows(b, op), op.piece(_number(op.ranks))
    rows.fill(y, op.y.shape[2], op.fill)
    rows.move(x, y, (op.x.shape[2], first), (op.y.shape[2], at), count)
