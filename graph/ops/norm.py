"""Normalisation and dropout."""

from __future__ import annotations

from ..graph import In, InOut, Op, Out, Tensor
from .pointwise import ACTIVATIONS, FROM_OUTPUT


def _check_channels(op: Op, x: Tensor, *tensors: Tensor | None) -> None:
    for tensor in tensors:
        if tensor is not None:
            op.need(tensor.shape == (x.shape[1],), x, tensor)


def _check_activation(op: Op, kind: str | None, x: Tensor) -> None:
    op.need(kind is None or kind in ACTIVATIONS, x)


class BatchNorm(Op):
    """y = f(weight (x - mean) inverse_std + bias), statistics over all axes but 1 of this batch.

    x, y: (N, C) or (N, C, H, W), the others: (C,). M is the number of values per channel, var their
    mean squared deviation, and inverse_std = 1 / sqrt(var + eps). In place, with m = momentum:
    running_mean = (1 - m) running_mean + m mean and running_var = (1 - m) running_var +
    m var M / (M - 1), the unbiased estimate, as in cuDNN and PyTorch. For a part of a batch both
    are None, and ``var`` is written; see KeepStatistics. A weight or bias that
    is None is 1 or 0. f is the ``activation`` with ``activation_alpha``, see Activation, set by a
    rewrite alone; None: f(h) = h. (Ioffe and Szegedy 2015, algorithm 1)
    """

    x: In
    y: Out
    mean: Out
    inverse_std: Out
    running_mean: InOut | None = None
    running_var: InOut | None = None
    var: Out | None = None
    momentum: float
    eps: float
    weight: In | None = None
    bias: In | None = None
    activation: str | None = None
    activation_alpha: float = 0.0

    def check(self) -> None:
        self.same(self.x, self.y)
        self.need(self.x.size > self.x.shape[1], self.x)
        _check_channels(self, self.x, self.weight, self.bias, self.mean, self.inverse_std)
        _check_channels(self, self.x, self.running_mean, self.running_var, self.var)
        self.need((self.running_mean is None) == (self.running_var is None), self.x)
        self.need((self.running_mean is None) == (self.var is not None), self.x)
        _check_activation(self, self.activation, self.x)

    def flops(self) -> int:
        return (7 + (self.activation is not None)) * self.x.size


class BatchNormInference(Op):
    """y = f(weight (x - running_mean) / sqrt(running_var + eps) + bias); shapes as in BatchNorm."""

    inputs = ("x", "weight", "bias", "running_mean", "running_var")
    x: In
    y: Out
    running_mean: In
    running_var: In
    eps: float
    weight: In | None = None
    bias: In | None = None
    activation: str | None = None
    activation_alpha: float = 0.0

    def check(self) -> None:
        self.same(self.x, self.y)
        _check_channels(self, self.x, self.weight, self.bias, self.running_mean, self.running_var)
        _check_activation(self, self.activation, self.x)

    def flops(self) -> int:
        return (2 + (self.activation is not None)) * self.x.size


class BatchNormInferenceBackward(Op):
    """dx = weight dy / sqrt(running_var + eps); shapes as in BatchNorm."""

    flops_each = 1
    inputs = ("dy", "weight", "running_var")
    dy: In
    dx: Out
    running_var: In
    eps: float
    weight: In | None = None

    def check(self) -> None:
        self.same(self.dy, self.dx)
        _check_channels(self, self.dy, self.weight, self.running_var)


class BatchNormBackward(Op):
    """dx = weight inverse_std (g - mean of g - h mean of g h), with h = (x - mean) inverse_std.

    Means are over all axes but 1; dw = sum of g h, db = sum of g: (C,). x, dy, dx as in BatchNorm.
    g = dy, or with an ``activation`` f: g = f' dy, where f' follows from y, forward's output, for
    kinds in FROM_OUTPUT, which need it (ReLU: g = 0 where y is not above 0, whatever dy), else from
    weight h + bias, forward's value before f: then ``bias`` is forward's, None for 0.
    """

    x: In
    dy: In
    mean: In
    inverse_std: In
    dx: Out
    eps: float
    weight: In | None = None
    bias: In | None = None
    dw: Out | None = None
    db: Out | None = None
    y: In | None = None
    activation: str | None = None
    activation_alpha: float = 0.0

    def check(self) -> None:
        self.same(self.x, self.dy, self.dx)
        _check_channels(self, self.x, self.mean, self.inverse_std, self.weight, self.bias)
        _check_channels(self, self.x, self.dw, self.db)
        _check_activation(self, self.activation, self.x)
        self.need(self.activation not in FROM_OUTPUT or self.y is not None, self.x)
        if self.y is not None:
            self.same(self.x, self.y)

    def flops(self) -> int:
        if self.activation is None:
            return 11 * self.x.size
        # The slope's product; also weight h + bias if the slope is evaluated there.
        return (12 if self.activation in FROM_OUTPUT else 14) * self.x.size


class _LocalNorm(Op):
    x: In
    y: Out
    size: int
    alpha: float
    beta: float
    k: float

    def check(self) -> None:
        super().check()
        self.need(len(self.x.shape) == 4 and self.size % 2 == 1, self.x, self.y)


class _LocalNormBackward(Op):
    x: In
    y: In
    dy: In
    dx: Out
    size: int
    alpha: float
    beta: float
    k: float

    def check(self) -> None:
        super().check()
        self.need(len(self.x.shape) == 4 and self.size % 2 == 1, *self.reads(), self.dx)


class Lrn(_LocalNorm):
    """y = x s^-beta, s[c] = k + (alpha / size) sum of x[c']^2 over the channels near c.

    Near are the ``size`` (odd) channels c - size // 2 .. c + size // 2 that exist: at the ends
    the sum is shorter, but the divisor is not. x, y: (N, C, H, W). Krizhevsky et al. 2012, section
    3.3, with cuDNN's division of alpha by the size (cudnnLRNCrossChannelForward).
    """

    def flops(self) -> int:
        return (self.size + 4) * self.x.size


class LrnBackward(_LocalNormBackward):
    """dx = dy s^-beta - (2 alpha beta / size) x sum of dy y / s over the same channels; as Lrn."""

    def flops(self) -> int:
        return (2 * self.size + 8) * self.x.size


class DivisiveNorm(_LocalNorm):
    """y = x s^-beta, s[p,q] = k + (alpha / size^2) sum of x[p',q']^2 over the pixels near (p, q).

    Near are the size x size (odd) pixels around (p, q) of the same channel that lie inside the
    picture: at a border the sum is shorter, but the divisor is not. x, y: (N, C, H, W). The formula
    of cudnnDivisiveNormalizationForward with CUDNN_DIVNORM_PRECOMPUTED_MEANS and no means given
    (means = NULL, which stands for zeros): lrnN = size, lrnAlpha = alpha, lrnBeta, lrnK; the
    library divides alpha by the window width to the power of the spatial dimensions. It is the
    divisive half of local contrast normalisation (Jarrett et al. 2009), with this smooth s^beta
    instead of max(c, sigma).
    """

    def flops(self) -> int:
        return (self.size**2 + 4) * self.x.size


class DivisiveNormBackward(_LocalNormBackward):
    """dx = dy s^-beta - (2 alpha beta / size^2) x sum of dy y / s over the same pixels."""

    def flops(self) -> int:
        return (2 * self.size**2 + 8) * self.x.size


class Dropout(Op):
    """mask = 1 where word >= threshold, else 0; y = scale x mask.

    The word of element e of the batch, counted row-major over (N, C, H, W), is word w % 4 of the
    block Philox4x32-10 (Salmon et al. 2011) of the 128-bit counter (w // 4, t), both 64 bits with
    the low word first, under ``key`` = (low, high), w = e // alike: ``alike`` is 1, or the size of
    a sample, all of whose elements then share a word. t = step // parts, and x begins with the
    element e = (step mod parts) times x's size: 0 if a batch is not computed in parts. So the
    mask is the same on every device, in every layout, for every number of parts. x, y: any shape;
    mask: as x, uint8; step: (1,) int64. (Srivastava et al. 2014, with the scaling in training)
    """

    flops_each = 1
    x: In
    step: In
    y: Out
    mask: Out
    key: tuple[int, int]
    threshold: int
    scale: float
    parts: int = 1
    alike: int = 1

    def check(self) -> None:
        self.same(self.x, self.y, self.mask)
        self.need(self.alike in (1, self.x.size // self.x.shape[0]), self.x)
        self.need(self.step.shape == (1,), self.step)


class DropoutBackward(Op):
    """dx = scale dy mask, the mask of forward."""

    flops_each = 1
    dy: In
    mask: In
    dx: Out
    scale: float
