"""Products of 8-bit integers, and the numbers that these stand for."""

from __future__ import annotations

from ...common.records import dataclass
from ..geometry import Window
from ..graph import In, Op, Out, Tensor
from .linear import check_conv


@dataclass(frozen=True)
class Quantization:
    """The integer q stands for scale * q: -128 to 127 if ``signed``, else 0 to 255."""

    scale: float
    signed: bool

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return (-128, 127) if self.signed else (0, 255)


class Quantize(Op):
    """q = x / scale, rounded to the nearest integer, half to even, within the bounds; as ``to``.

    The tensor q has type float32, as all activations; a backend may keep it in a byte each.
    """

    flops_each = 2
    x: In
    q: Out
    to: Quantization


class _QuantizedProduct(Op):
    """What products of integers have in common.

    With x the integers of ``given`` and v those of w,

        y = f(given.scale * s * (x v) + b)

    where v = w / t, rounded; t, one for each output, is max |w| / 127, or 1 for 0; x v is exact. s
    = t, and b = bias or 0. With a batch norm behind the product, s = t * a and b = (bias -
    running_mean) * a + shift with a = weight / sqrt(running_var + eps), 1 and 0 for those that are
    None. f is ReLU or nothing. With ``to`` the result is quantized as in Quantize.
    """

    inputs = ("x", "w", "bias", "weight", "shift", "running_mean", "running_var")
    x: In
    w: In
    y: Out
    given: Quantization
    to: Quantization | None = None
    bias: In | None = None
    weight: In | None = None
    shift: In | None = None
    running_mean: In | None = None
    running_var: In | None = None
    eps: float = 0.0
    relu: bool = False

    def _check_outputs(self) -> None:
        for each in (self.bias, self.weight, self.shift, self.running_mean, self.running_var):
            if each is not None:
                self.need(each.shape == (self.w.shape[0],), each, self.w)
        self.need((self.running_mean is None) == (self.running_var is None), self.w)

    @property
    def parameters(self) -> tuple[Tensor | None, ...]:
        """What the weights, scales and sums are made of: ``inputs`` without x."""
        return tuple(getattr(self, name) for name in self.inputs[1:])


class QuantizedConv2d(_QuantizedProduct):
    """The convolution of pictures of integers with quantized filters; shapes as in Conv2d."""

    window: Window
    groups: int = 1

    def check(self) -> None:
        check_conv(self, self.x, self.w, self.y, self.window, self.groups)
        self._check_outputs()

    def flops(self) -> int:
        return 2 * self.y.size * (self.w.size // self.w.shape[0] + 1)


class QuantizedMatMul(_QuantizedProduct):
    """x w^T of integers and quantized weights; x: (N, K), w: (M, K), y: (N, M)."""

    def check(self) -> None:
        n, k = self.x.shape
        self.need(self.w.shape[1] == k and self.y.shape == (n, self.w.shape[0]), self.x, self.w)
        self._check_outputs()

    def flops(self) -> int:
        return 2 * self.y.size * (self.x.shape[1] + 1)
