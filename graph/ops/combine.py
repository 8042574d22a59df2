"""Sums, concatenation along channels, and their backward: where paths join and split."""

from __future__ import annotations

from ..graph import In, Op, Out


class Add(Op):
    """y = f(sum of the terms), added from the first to the last; all shapes alike.

    The end of a residual block; in backward the sum of the gradients of a tensor with several
    readers. f is an activation or none, and none if there are more than two terms.
    """

    terms: tuple[In, ...]
    y: Out
    activation: str | None = None
    activation_alpha: float = 0.0

    def check(self) -> None:
        self.same(*self.terms, self.y)
        count = len(self.terms)
        self.need(count == 2 or (count > 2 and self.activation is None), *self.terms)

    def flops(self) -> int:
        return (len(self.terms) - 1 + (self.activation is not None)) * self.y.size


class Concat(Op):
    """y = the parts, one after another along axis 1; parts: (N, C_k, ...), y: (N, sum C_k, ...)."""

    parts: tuple[In, ...]
    y: Out

    def check(self) -> None:
        n, channels, *rest = self.y.shape
        fits = all(p.shape[:1] == (n,) and p.shape[2:] == tuple(rest) for p in self.parts)
        total = sum(p.shape[1] for p in self.parts)
        self.need(fits and total == channels and len(self.parts) > 1, *self.parts, self.y)


class Slice(Op):
    """y[n,c] = x[n,begin + c]; x: (N, C, ...), y: (N, C' <= C - begin, ...). Concat's backward."""

    x: In
    y: Out
    begin: int

    def check(self) -> None:
        inside = self.begin >= 0 and self.begin + self.y.shape[1] <= self.x.shape[1]
        alike = self.x.shape[:1] + self.x.shape[2:] == self.y.shape[:1] + self.y.shape[2:]
        self.need(inside and alike, self.x, self.y)

    def bytes(self) -> int:
        return 2 * self.y.nbytes


class PadChannels(Op):
    """y = x with channels of zeros after its own; x: (N, C, ...), y: (N, C' > C, ...).

    Its backward is a Slice of dy from channel 0.
    """

    x: In
    y: Out

    def check(self) -> None:
        alike = self.x.shape[:1] + self.x.shape[2:] == self.y.shape[:1] + self.y.shape[2:]
        self.need(alike and self.x.shape[1] < self.y.shape[1], self.x, self.y)
