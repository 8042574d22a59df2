"""Operations of LeNet-5 (LeCun et al. 1998) and the perceptron besides dense and convolution."""

from __future__ import annotations

from ..graph import In, Op, Out, Tensor

Ends = tuple[int, int, int, int]


class Pad2d(Op):
    """y = x with a border of ``value``; x: (N, C, H, W), padding: (top, bottom, left, right)."""

    x: In
    y: Out
    padding: Ends
    value: float = 0.0

    def check(self) -> None:
        _check_border(self, self.x, self.y, self.padding)


class Pad2dBackward(Op):
    """dx = dy without its border of ``padding``; shapes as in Pad2d."""

    dy: In
    dx: Out
    padding: Ends

    def check(self) -> None:
        _check_border(self, self.dx, self.dy, self.padding)


def _check_border(op: Op, inner: Tensor, outer: Tensor, padding: Ends) -> None:
    top, bottom, left, right = padding
    n, c, h, w = inner.shape
    fits = outer.shape == (n, c, h + top + bottom, w + left + right) and min(padding) >= 0
    op.need(fits, inner, outer)


class ChannelScale(Op):
    """y = factor s x along axis 1; x, y: (N, C, H, W), s: (C,), factor a constant."""

    flops_each = 2
    x: In
    s: In
    y: Out
    factor: float = 1.0

    def check(self) -> None:
        self.same(self.x, self.y)
        self.need(self.s.shape == (self.x.shape[1],), self.x, self.s)


class GateChannels(ChannelScale):
    """The same with factors s that other operations compute."""


class ChannelScaleBackward(Op):
    """dx = factor s dy, ds = factor times the sum of dy x over all axes but 1."""

    flops_each = 4
    x: In
    s: In
    dy: In
    dx: Out
    ds: Out
    factor: float = 1.0

    def check(self) -> None:
        self.same(self.x, self.dy, self.dx)
        self.same(self.s, self.ds)
        self.need(self.s.shape == (self.x.shape[1],), self.x, self.s)


Connections = tuple[tuple[int, int], ...]


class ConnectFilters(Op):
    """filters[o,c] = weights[k] where pairs[k] = (o, c), zero where no pair connects them.

    weights: (pairs, kh, kw), filters: (O, C, kh, kw); the pairs are distinct.
    """

    weights: In
    filters: Out
    pairs: Connections

    def check(self) -> None:
        _check_pairs(self, self.weights, self.filters, self.pairs)


class ConnectFiltersBackward(Op):
    """dweights[k] = dfilters[o,c] where pairs[k] = (o, c); shapes as in ConnectFilters."""

    dfilters: In
    dweights: Out
    pairs: Connections

    def check(self) -> None:
        _check_pairs(self, self.dweights, self.dfilters, self.pairs)


def _check_pairs(op: Op, weights: Tensor, filters: Tensor, pairs: Connections) -> None:
    count, *kernel = weights.shape
    o, c, *window = filters.shape
    fits = len(set(pairs)) == len(pairs) == count and kernel == window
    fits = fits and all(0 <= i < o and 0 <= j < c for i, j in pairs)
    op.need(fits, weights, filters)


Centres = tuple[tuple[float, ...], ...]


class Rbf(Op):
    """y[n,k] = -sum over i of (x[n,i] - centres[k][i])^2; x: (N, I), y: (N, K), centres constant.

    LeCun et al. 1998, eq. 7, with the opposite sign, so that the best class has the largest score.
    """

    x: In
    y: Out
    centres: Centres

    def check(self) -> None:
        _check_centres(self, self.x, self.y, self.centres)

    def flops(self) -> int:
        return 3 * self.x.size * len(self.centres)


class RbfBackward(Op):
    """dx[n,i] = -2 sum over k of dy[n,k] (x[n,i] - centres[k][i])."""

    x: In
    dy: In
    dx: Out
    centres: Centres

    def check(self) -> None:
        self.same(self.x, self.dx)
        _check_centres(self, self.x, self.dy, self.centres)

    def flops(self) -> int:
        return 3 * self.x.size * len(self.centres)


def _check_centres(op: Op, x: Tensor, y: Tensor, centres: Centres) -> None:
    n, inputs = x.shape
    fits = y.shape == (n, len(centres)) and {len(row) for row in centres} == {inputs}
    op.need(fits, x, y)


class Heaviside(Op):
    """y = 1 where x > 0, else 0; any shape. It has no gradient to pass on."""

    flops_each = 1
    x: In
    y: Out
