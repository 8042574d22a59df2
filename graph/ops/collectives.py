"""What ranks do together: processes that each compute some of the parts of every batch."""

from __future__ import annotations

from ..graph import In, InOut, Op, Out, Tensor


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


class Exchange(Op):
    """What ranks send each other on the way from one tensor to another.

    ``silent``: nothing is sent, and what would be received is not defined, as in a trial of other
    calls.
    """

    shared_out = True
    ranks: int
    silent: bool = False

    def bytes(self) -> int:
        """What a rank sends: to every other its share of what is read."""
        return self.reads()[0].nbytes * (self.ranks - 1) // self.ranks

    def sent(self, rank: int) -> int:
        """What this rank sends; unless it says otherwise, as much as any other."""
        return self.bytes()

    def rows(self, whole: Tensor, own: Tensor) -> None:
        """Check that ``whole`` has the rows of ``own`` for every rank."""
        alike = whole.shape == (self.ranks * own.shape[0], *own.shape[1:])
        self.need(alike, whole, own)

    def units(self, few: Tensor, every: Tensor) -> None:
        """Check that ``few`` has all rows of a rank's units, ``every`` a rank's rows of all."""
        rows, units, *rest = every.shape
        fits = units % self.ranks == 0
        alike = few.shape == (self.ranks * rows, units // self.ranks, *rest)
        self.need(fits and alike, few, every)


class GatherRows(Exchange):
    """y[r N + i] = x[i] of rank r; x: (N, ...), y: (ranks N, ...)."""

    x: In
    y: Out

    def check(self) -> None:
        self.rows(self.y, self.x)

    def bytes(self) -> int:
        """What a rank sends: its rows to every other."""
        return self.x.nbytes * (self.ranks - 1)


class GatherRowsBackward(Exchange):
    """dx[i] = sum over the ranks of their dy[own N + i], added in pairs as in AllReduce.

    own: the number of this rank; dy: (ranks N, ...), dx: (N, ...).
    """

    dy: In
    dx: Out

    def check(self) -> None:
        self.rows(self.dy, self.dx)

    def flops(self) -> int:
        return self.dx.size * (self.ranks - 1)


class ExchangeUnits(Exchange):
    """y[i, r U + u] = x[own N + i, u] of rank r, which has computed its units for all rows.

    own: the number of this rank; x: (ranks N, U, ...), y: (N, ranks U, ...).
    """

    x: In
    y: Out

    def check(self) -> None:
        self.units(self.x, self.y)


class ExchangeUnitsBackward(Exchange):
    """dx[r N + i, u] = dy[i, own U + u] of rank r; shapes as in ExchangeUnits."""

    dy: In
    dx: Out

    def check(self) -> None:
        self.units(self.dx, self.dy)


class JoinNorms(Op):
    """norm = sqrt(own^2 + sum over the ranks of their norms^2).

    own: (1,) the norm of what all ranks have alike, None if there is nothing; norms: (ranks,) those
    of what each has alone.
    """

    norms: In
    norm: Out
    own: In | None = None

    def check(self) -> None:
        alone = () if self.own is None else (self.own,)
        self.need(len(self.norms.shape) == 1, self.norms)
        self.need(all(t.shape == (1,) for t in (self.norm, *alone)), self.norm, *alone)

    def flops(self) -> int:
        return 2 * self.norms.size + 3
