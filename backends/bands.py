"""The rows of pictures that ranks send each other, in NumPy; see ``graph/ops/bands.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph.ops import Banded, GatherBands, HaloExchange, HaloExchangeBackward, TakeBand
from .base import Array
from .collectives import Communicator, joined


class Halo:
    """What this rank sends and receives in an exchange of arrays of a type."""

    def __init__(self, op: Banded, dtype: Any) -> None:
        self._op = op
        self._ranks: Communicator | None = None if op.ranks == 1 else joined(op.ranks)
        self._own = 0 if self._ranks is None else self._ranks.rank
        n, channels, _, width = op.band.shape
        self._row = n * channels * width
        others = [other for other in range(op.ranks) if other != self._own]
        # Of my band what others want, and what I want of theirs.
        self._given = {other: op.piece(self._own, other) for other in others}
        self._taken = {other: op.piece(other, self._own) for other in others}
        self._out, self._in = (
            np.empty(self._row * sum(rows for _, _, rows in pieces.values()), dtype)
            for pieces in (self._given, self._taken)
        )

    def forward(self, x: Array, y: Array, fill: float) -> None:
        """Fill y, the window, from x, the band."""
        self._cut(self._given, x, 0, self._out)
        self._trade(self._given, self._out, self._taken, self._in)
        y[...] = fill
        first, at, rows = self._op.piece(self._own, self._own)
        y[:, :, at : at + rows] = x[:, :, first : first + rows]
        for target, rows_of in self._pieces(self._taken, y, 1, self._in):
            target[...] = rows_of

    def backward(self, dy: Array, dx: Array) -> None:
        """Fill dx, of the band, from dy, of the window."""
        self._cut(self._taken, dy, 1, self._in)
        self._trade(self._taken, self._in, self._given, self._out)
        dx[...] = 0.0
        found = dict(zip(self._given, self._pieces(self._given, dx, 0, self._out), strict=True))
        for rank in range(self._op.ranks):
            if rank == self._own:
                first, at, rows = self._op.piece(rank, rank)
                dx[:, :, first : first + rows] += dy[:, :, at : at + rows]
            else:
                target, rows_of = found[rank]
                target += rows_of

    def _pieces(
        self, pieces: dict[int, tuple[int, int, int]], array: Array, end: int, flat: Array
    ) -> list[tuple[Array, Array]]:
        """For every other rank, its rows of the array, and those of the flat buffer.

        end: whether the array is the band, 0, or the window, 1.
        """
        found, begin = [], 0
        for piece in pieces.values():
            first, rows = piece[end], piece[2]
            part = array[:, :, first : first + rows]
            found.append((part, flat[begin : begin + part.size].reshape(part.shape)))
            begin += part.size
        return found

    def _cut(
        self, pieces: dict[int, tuple[int, int, int]], array: Array, end: int, flat: Array
    ) -> None:
        for part, rows_of in self._pieces(pieces, array, end, flat):
            rows_of[...] = part

    def _trade(
        self,
        sent: dict[int, tuple[int, int, int]],
        out: Array,
        received: dict[int, tuple[int, int, int]],
        room: Array,
    ) -> None:
        if self._ranks is not None:
            counts, sizes = (
                [self._row * pieces.get(r, (0, 0, 0))[2] for r in range(self._op.ranks)]
                for pieces in (sent, received)
            )
            self._ranks.trade(out, counts, room, sizes)


def exchange(op: HaloExchange, x: Array, y: Array) -> None:
    Halo(op, x.dtype).forward(x, y, op.fill)


def exchange_back(op: HaloExchangeBackward, dy: Array, dx: Array) -> None:
    Halo(op, dy.dtype).backward(dy, dx)


def gather(op: GatherBands, x: Array, bands: Array, y: Array) -> None:
    """bands: room for those of all ranks, (ranks, N, C, B, W)."""
    if op.ranks == 1:
        bands[0] = x
    else:
        ranks = joined(op.ranks)
        bands[ranks.rank] = x
        ranks.gather(bands)
    each, rows = x.shape[2], y.shape[2]
    for rank, band in enumerate(bands):
        begin = rank * each
        y[:, :, begin : begin + each] = band[:, :, : max(rows - begin, 0)]


def take(op: TakeBand, x: Array, y: Array) -> None:
    first, at, rows = op.piece(0 if op.ranks == 1 else joined(op.ranks).rank)
    y[...] = op.fill
    y[:, :, at : at + rows] = x[:, :, first : first + rows]
