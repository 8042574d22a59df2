"""What ranks do together: processes that each compute some of the parts of every batch."""

from __future__ import annotations

from ..graph import In, InOut, Op


class AllReduce(Op):
    """On every rank v = the sum of v over the ranks, added in a binary tree over their numbers.

    Neighbours are added first, then their sums, and so on; one without a neighbour is passed on. So
    every rank has the same bits.
    """

    shared_out = True
    values: tuple[InOut, ...]
    ranks: int

    def check(self) -> None:
        self.need(self.ranks >= 1 and len(self.values) > 0, *self.values)

    def flops(self) -> int:
        """Of all ranks, by each its share: about one addition a number."""
        return sum(t.size for t in self.values) * (self.ranks - 1) // self.ranks

    def bytes(self) -> int:
        """What a rank sends: its share of every other's sums, then its share of the result."""
        return 2 * sum(t.nbytes for t in self.values) * (self.ranks - 1) // self.ranks


class AllGather(Op):
    """On every rank rows = those of all ranks, of which rank r computed the r-th share.

    rows: the first axis is a multiple of ``ranks``.
    """

    shared_out = True
    rows: InOut
    ranks: int

    def check(self) -> None:
        self.need(self.rows.shape[0] % self.ranks == 0, self.rows)

    def bytes(self) -> int:
        """What a rank sends: its share to every other."""
        return self.rows.nbytes * (self.ranks - 1) // self.ranks


class SkipParts(Op):
    """step += parts, those that other ranks compute; step: (1,) int64."""

    shared_out = True
    step: InOut
    parts: int

    def check(self) -> None:
        self.need(self.step.shape == (1,), self.step)


class KeepMetrics(Op):
    """kept[step mod parts] = sums, then sums = 0: the metrics of a part alone.

    sums: (3,) float64, what Metrics has added since; step: (1,) int64 counts parts; kept: (parts,
    3) float64.
    """

    shared_out = True
    step: In
    sums: InOut
    kept: InOut
    parts: int

    def check(self) -> None:
        self.need(self.kept.shape == (self.parts, *self.sums.shape), self.kept, self.sums)


class AddMetrics(Op):
    """sums += every row of kept, from the first, as if one rank had computed all parts."""

    shared_out = True
    kept: In
    sums: InOut

    def check(self) -> None:
        self.need(self.kept.shape[1:] == self.sums.shape, self.kept, self.sums)
