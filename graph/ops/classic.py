"""Operations of LeNet-5 (LeCun et al. 1998) and the perceptron besides dense and convolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..graph import Op, Tensor
from .rules import need, same

Ends = tuple[int, int, int, int]


@dataclass(frozen=True, kw_only=True)
class Pad2d(Op):
    """y = x with a border of ``value``; x: (N, C, H, W), padding: (top, bottom, left, right)."""

    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)
    x: Tensor
    y: Tensor
    padding: Ends
    value: float = 0.0

    def check(self) -> None:
        _check_border(self, self.x, self.y, self.padding)


@dataclass(frozen=True, kw_only=True)
class Pad2dBackward(Op):
    """dx = dy without its border of ``padding``; shapes as in Pad2d."""

    inputs: ClassVar = ("dy",)
    outputs: ClassVar = ("dx",)
    dy: Tensor
    dx: Tensor
    padding: Ends

    def check(self) -> None:
        _check_border(self, self.dx, self.dy, self.padding)


def _check_border(op: Op, inner: Tensor, outer: Tensor, padding: Ends) -> None:
    top, bottom, left, right = padding
    n, c, h, w = inner.shape
    fits = outer.shape == (n, c, h + top + bottom, w + left + right) and min(padding) >= 0
    need(op, fits, inner, outer)


@dataclass(frozen=True, kw_only=True)
class ChannelScale(Op):
    """y = factor s x along axis 1; x, y: (N, C, H, W), s: (C,), factor a constant."""

    inputs: ClassVar = ("x", "s")
    outputs: ClassVar = ("y",)
    x: Tensor
    s: Tensor
    y: Tensor
    factor: float = 1.0

    def check(self) -> None:
        same(self, self.x, self.y)
        need(self, self.s.shape == (self.x.shape[1],), self.x, self.s)

    def flops(self) -> int:
        return 2 * self.x.size


@dataclass(frozen=True, kw_only=True)
class ChannelScaleBackward(Op):
    """dx = factor s dy, ds = factor times the sum of dy x over all axes but 1."""

    inputs: ClassVar = ("x", "s", "dy")
    outputs: ClassVar = ("dx", "ds")
    x: Tensor
    s: Tensor
    dy: Tensor
    dx: Tensor
    ds: Tensor
    factor: float = 1.0

    def check(self) -> None:
        same(self, self.x, self.dy, self.dx)
        same(self, self.s, self.ds)
        need(self, self.s.shape == (self.x.shape[1],), self.x, self.s)

    def flops(self) -> int:
        return 4 * self.x.size


Connections = tuple[tuple[int, int], ...]


@dataclass(frozen=True, kw_only=True)
class ConnectFilters(Op):
    """filters[o,c] = weights[k] where pairs[k] = (o, c), zero where no pair connects them.

    weights: (pairs, kh, kw), filters: (O, C, kh, kw); the pairs are distinct.
    """

    inputs: ClassVar = ("weights",)
    outputs: ClassVar = ("filters",)
    weights: Tensor
    filters: Tensor
    pairs: Connections

    def check(self) -> None:
        _check_pairs(self, self.weights, self.filters, self.pairs)


@dataclass(frozen=True, kw_only=True)
class ConnectFiltersBackward(Op):
    """dweights[k] = dfilters[o,c] where pairs[k] = (o, c); shapes as in ConnectFilters."""

    inputs: ClassVar = ("dfilters",)
    outputs: ClassVar = ("dweights",)
    dfilters: Tensor
    dweights: Tensor
    pairs: Connections

    def check(self) -> None:
        _check_pairs(self, self.dweights, self.dfilters, self.pairs)


def _check_pairs(op: Op, weights: Tensor, filters: Tensor, pairs: Connections) -> None:
    count, *kernel = weights.shape
    o, c, *window = filters.shape
    fits = len(set(pairs)) == len(pairs) == count and kernel == window
    fits = fits and all(0 <= i < o and 0 <= j < c for i, j in pairs)
    need(op, fits, weights, filters)


Centres = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Rbf(Op):
    """y[n,k] = -sum over i of (x[n,i] - centres[k][i])^2; x: (N, I), y: (N, K), centres constant.

    LeCun et al. 1998, eq. 7, with the opposite sign, so that the best class has the largest score.
    """

    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)
    x: Tensor
    y: Tensor
    centres: Centres

    def check(self) -> None:
        _check_centres(self, self.x, self.y, self.centres)

    def flops(self) -> int:
        return 3 * self.x.size * len(self.centres)


@dataclass(frozen=True, kw_only=True)
class RbfBackward(Op):
    """dx[n,i] = -2 sum over k of dy[n,k] (x[n,i] - centres[k][i])."""

    inputs: ClassVar = ("x", "dy")
    outputs: ClassVar = ("dx",)
    x: Tensor
    dy: Tensor
    dx: Tensor
    centres: Centres

    def check(self) -> None:
        same(self, self.x, self.dx)
        _check_centres(self, self.x, self.dy, self.centres)

    def flops(self) -> int:
        return 3 * self.x.size * len(self.centres)


def _check_centres(op: Op, x: Tensor, y: Tensor, centres: Centres) -> None:
    n, inputs = x.shape
    fits = y.shape == (n, len(centres)) and {len(row) for row in centres} == {inputs}
    need(op, fits, x, y)


@dataclass(frozen=True, kw_only=True)
class Heaviside(Op):
    """y = 1 where x > 0, else 0; any shape. It has no gradient to pass on."""

    inputs: ClassVar = ("x",)
    outputs: ClassVar = ("y",)
    x: Tensor
    y: Tensor

    def check(self) -> None:
        same(self, self.x, self.y)

    def flops(self) -> int:
        return self.x.size
