"""Sums, concatenation along channels, and their backward: where paths join and split."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..graph import Op, Tensor
from .rules import need, same


@dataclass(frozen=True, kw_only=True)
class Add(Op):
    """y = f(sum of the terms), added from the first to the last; all shapes alike.

    The end of a residual block; in backward the sum of the gradients of a tensor with several
    readers. f is an activation or none, and none if there are more than two terms.
    """

    inputs: ClassVar = ("terms",)
    outputs: ClassVar = ("y",)
    terms: tuple[Tensor, ...]
    y: Tensor
    activation: str | None = None
    activation_alpha: float = 0.0

    def check(self) -> None:
        same(self, *self.terms, self.y)
        count = len(self.terms)
        need(self, count == 2 or (count > 2 and self.activation is None), *self.terms)

    def flops(self) -> int:
        return (len(self.terms) - 1 + (self.activation is not None)) * self.y.size


@dataclass(frozen=True, kw_only=True)
class Concat(Op):
    """y = the parts, one after another along axis 1; parts: (N, C_k, ...), y: (N, sum C_k, ...)."""

    inputs: ClassVar = ("parts",)
    outputs: ClassVar = ("y",)
    parts: tuple[Tensor, ...]
    y: Tensor

    def check(self) -> None:
        n, channels, *rest = self.y.shape
        fits = all(p.shape[:1] == (n,) and p.shape[2:] == tuple(rest) for p in self.parts)
        total = sum(p.shape[1] for p in self.parts)
        need(self, fits and total == channels and len(self.parts) > 1, *self.parts, self.y)


@dataclass(frozen=True, kw_only=True)
class Slice(Op):
    """y[n,c] = x[n,begin + c]; x: (N, C, ...), y: (N, C' <= C - begin, ...). Concat's backward."""

    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)
    x: Tensor
    y: Tensor
    begin: int

    def check(self) -> None:
        inside = self.begin >= 0 and self.begin + self.y.shape[1] <= self.x.shape[1]
        alike = self.x.shape[:1] + self.x.shape[2:] == self.y.shape[:1] + self.y.shape[2:]
        need(self, inside and alike, self.x, self.y)

    def bytes(self) -> int:
        return 2 * self.y.nbytes


@dataclass(frozen=True, kw_only=True)
class PadChannels(Op):
    """y = x with channels of zeros after its own; x: (N, C, ...), y: (N, C' > C, ...).

    Its backward is a Slice of dy from channel 0.
    """

    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)
    x: Tensor
    y: Tensor

    def check(self) -> None:
        alike = self.x.shape[:1] + self.x.shape[2:] == self.y.shape[:1] + self.y.shape[2:]
        need(self, alike and self.x.shape[1] < self.y.shape[1], self.x, self.y)
