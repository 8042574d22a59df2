"""Running statistics of a batch that is computed in parts, moved once all parts are there."""

from __future__ import annotations

from ..graph import In, InOut, Op, Tensor


class KeepStatistics(Op):
    """kept[step mod parts] = the values, one behind the other.

    values: float32, any shapes; step: (1,) int64 counts parts; kept: (parts, sum of their sizes).
    """

    values: tuple[In, ...]
    step: In
    kept: InOut
    parts: int

    def check(self) -> None:
        self.need(self.kept.shape == (self.parts, sum(t.size for t in self.values)), self.kept)

    def bytes(self) -> int:
        return 2 * self.kept.nbytes // self.parts


class MoveStatistics(Op):
    """For every row of kept, from the first: r = (1 - momentum) r + weight value.

    kept: (parts, numbers) as KeepStatistics has left it; running: r, one tensor for each of its
    values; momentum, weight: one number for each.
    """

    flops_each = 3
    kept: In
    running: tuple[InOut, ...]
    momentum: tuple[float, ...]
    weight: tuple[float, ...]

    def check(self) -> None:
        count = len(self.running)
        numbers = sum(t.size for t in self.running)
        self.need(self.kept.shape[1:] == (numbers,), self.kept, *self.running)
        self.need(len(self.momentum) == len(self.weight) == count, *self.running)

    def spans(self) -> list[tuple[Tensor, slice]]:
        """Every running statistic, and where its values lie in a row."""
        found, begin = [], 0
        for tensor in self.running:
            found.append((tensor, slice(begin, begin + tensor.size)))
            begin += tensor.size
        return found
