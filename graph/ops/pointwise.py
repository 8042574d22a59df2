"""Operations without parameters: pooling, activation, scaling, softmax and reshape."""

from __future__ import annotations

from typing import Literal

from ..geometry import Window
from ..graph import In, Op, Out, Tensor

PoolKind = Literal["max", "avg"]

# The derivative of these follows from the output alone, so backward keeps y and not x.
FROM_OUTPUT = ("relu", "leaky_relu", "sigmoid", "tanh", "elu", "relu6", "scaled_tanh")
_FROM_INPUT = ("softplus", "silu", "gelu", "gelu_tanh", "hardsigmoid", "hardswish", "mish")
ACTIVATIONS = (*FROM_OUTPUT[:-1], *_FROM_INPUT, "scaled_tanh")
# Of these f(0) is not 0: they would fill what pads a layout.
RAISED = ("sigmoid", "softplus", "hardsigmoid")


def _check_pool(op: Op, x: Tensor, y: Tensor, window: Window) -> None:
    n, c, h, w = x.shape
    op.need(y.shape == (n, c, *window.output(h, w)), x, y)


class Pool2d(Op):
    """y = max, or mean over the pixels inside the picture, of x in each window.

    x: (N, C, H, W), y: (N, C, P, Q). Padding never wins a maximum.
    """

    x: In
    y: Out
    window: Window
    kind: PoolKind

    def check(self) -> None:
        _check_pool(self, self.x, self.y, self.window)

    def flops(self) -> int:
        return self.y.size * self.window.area


class Pool2dBackward(Op):
    """max: dx at the first maximum of each window += dy; avg: dy / count over the window.

    x, y: forward's input and output, needed for max alone; dy: as y, dx: as x.
    """

    inputs = ("x", "y", "dy")
    dy: In
    dx: Out
    window: Window
    kind: PoolKind
    x: In | None = None
    y: In | None = None

    def check(self) -> None:
        _check_pool(self, self.dx, self.dy, self.window)
        self.need(self.kind == "avg" or (self.x is not None and self.y is not None), self.dx)

    def flops(self) -> int:
        return self.dy.size * (1 if self.kind == "max" else self.window.area)


class Activation(Op):
    """y = f(x), elementwise, any shape.

    relu max(x, 0); leaky_relu x or alpha x below 0; sigmoid 1 / (1 + e^-x); tanh; elu x or
    alpha (e^x - 1) below 0; softplus log(1 + e^x); silu x sigmoid(x); gelu x Phi(x) with the exact
    error function; gelu_tanh 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))); relu6
    min(max(x, 0), 6); hardsigmoid relu6(x + 3) / 6; hardswish x hardsigmoid(x); mish
    x tanh(softplus(x)); scaled_tanh 1.7159 tanh(2 x / 3). Slopes at a kink: 0 for relu6 and
    hardsigmoid; hardswish has that of its outer side.
    """

    flops_each = 1
    x: In
    y: Out
    kind: str
    alpha: float = 0.0

    def check(self) -> None:
        super().check()
        self.need(self.kind in ACTIVATIONS, self.x)


class ActivationBackward(Op):
    """dx = f'(x) dy; ``value`` is forward's output for kinds in FROM_OUTPUT, else its input."""

    flops_each = 2
    value: In
    dy: In
    dx: Out
    kind: str
    alpha: float = 0.0


class Reshape(Op):
    """y = x in row-major (C, H, W) order under another shape of the same size."""

    x: In
    y: Out

    def check(self) -> None:
        self.need(self.x.size == self.y.size, self.x, self.y)


class Scale(Op):
    """y = factor x, any shape."""

    flops_each = 1
    x: In
    y: Out
    factor: float


class Softmax(Op):
    """y[n,c] = e^x[n,c] / sum over k of e^x[n,k], or its logarithm; x, y: (N, C) or (N, C, H, W).

    The logarithm is x - log sum e^x, finite where the probability itself is too small for a float.
    """

    flops_each = 4
    x: In
    y: Out
    log: bool = False


class SoftmaxBackward(Op):
    """dx = y (dy - sum over axis 1 of y dy), y forward's output; of the log dy - e^y sum of dy."""

    flops_each = 4
    y: In
    dy: In
    dx: Out
    log: bool = False
