"""Bands of rows of pictures, one on each of several ranks, and the rows that these send around.

Pictures of H rows are cut into bands of B = ceil(H / ranks) rows: rank r has the rows from r B on.
A window that slides over them needs rows of other bands too, its halo: rank r then wants the rows
from r step - before on. Rows that no picture has are 0, or ``fill``.
"""

from __future__ import annotations

from typing import ClassVar

from ..graph import In, Out, Tensor
from .collectives import Exchange


def band_of(rows: int, ranks: int) -> int:
    """How many rows each rank has of so many."""
    return -(-rows // ranks)


class Banded(Exchange):
    """What every rank wants of the rows of pictures, which lie in bands on all ranks.

    height: that of a whole picture.
    """

    # The fields of the band and of the window.
    ends: ClassVar[tuple[str, str]] = ("x", "y")
    height: int
    step: int
    before: int = 0

    @property
    def band(self) -> Tensor:
        """This rank's band: (N, C, B, W)."""
        return self.tensors(self.ends)[0]

    @property
    def window(self) -> Tensor:
        """What this rank wants: (N, C, wanted rows, W)."""
        return self.tensors(self.ends)[1]

    def check(self) -> None:
        n, channels, rows, width = self.band.shape
        self.need(rows == band_of(self.height, self.ranks), self.band)
        self.need(self.window.shape[:2] == (n, channels), self.band, self.window)
        self.need(self.window.shape[3] == width, self.band, self.window)

    def piece(self, owner: int, wanting: int) -> tuple[int, int, int]:
        """What one rank wants of another's band: first row there, first row of the window, rows."""
        each = self.band.shape[2]
        first = wanting * self.step - self.before
        begin = max(owner * each, first)
        end = min(owner * each + each, self.height, first + self.window.shape[2])
        return begin - owner * each, begin - first, max(end - begin, 0)

    def bytes(self) -> int:
        """What the rank sends that sends most."""
        return max(map(self.sent, range(self.ranks)))

    def sent(self, rank: int) -> int:
        others = (other for other in range(self.ranks) if other != rank)
        rows = sum(self.piece(*self._way(rank, other))[2] for other in others)
        return rows * self.band.nbytes // self.band.shape[2]

    def _way(self, sender: int, receiver: int) -> tuple[int, int]:
        """The owner and the wanting rank of what one rank sends to another."""
        return sender, receiver


class HaloExchange(Banded):
    """y[..., i, :] = row (r step - before + i) of the pictures, where r is the number of this rank.

    x: (N, C, B, W), this rank's band; y: (N, C, wanted rows, W).
    """

    x: In
    y: Out
    fill: float = 0.0


class HaloExchangeBackward(Banded):
    """dx = sum of what all ranks have of the gradient of each row, in the order of the ranks.

    dy: (N, C, wanted rows, W), dx: (N, C, B, W).
    """

    flops_each = 1
    ends = ("dx", "dy")
    dy: In
    dx: Out

    def _way(self, sender: int, receiver: int) -> tuple[int, int]:
        return receiver, sender


class GatherBands(Exchange):
    """y[..., r B + i, :] = x[..., i, :] of rank r; x: (N, C, B, W), y: (N, C, H, W)."""

    x: In
    y: Out

    def check(self) -> None:
        n, channels, rows, width = self.y.shape
        self.need(self.x.shape == (n, channels, band_of(rows, self.ranks), width), self.x, self.y)

    def bytes(self) -> int:
        """What a rank sends: its band to every other."""
        return self.x.nbytes * (self.ranks - 1)


class TakeBand(Exchange):
    """y[..., i, :] = x[..., r step - before + i, :]: what rank r wants of whole pictures.

    Every rank has these, so nothing is sent. x: (N, C, H, W), y: (N, C, wanted rows, W).
    """

    x: In
    y: Out
    step: int
    before: int = 0
    fill: float = 0.0

    def check(self) -> None:
        self.need(self.x.shape[:2] == self.y.shape[:2], self.x, self.y)
        self.need(self.x.shape[3] == self.y.shape[3], self.x, self.y)

    def bytes(self) -> int:
        return 0

    def piece(self, rank: int) -> tuple[int, int, int]:
        """What a rank wants: first row of the picture, first row of y, rows."""
        first = rank * self.step - self.before
        begin, end = max(first, 0), min(first + self.y.shape[2], self.x.shape[2])
        return begin, begin - first, max(end - begin, 0)
