"""Activation, scaling, softmax and reshape; the error function, which NumPy lacks."""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

import numpy as np

from ...graph import ops
from ..base import Array
from .kernels import kernel

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# erf(x) = x P(x^2) / Q(x^2) up to 0.46875, erfc(x) = e^(-x^2) P(x) / Q(x) up to 4; coefficients of
# the highest power first. The second also serves beyond 4, where erfc itself is below 2e-8.
_NEAR = 0.46875
_NEAR_P, _NEAR_Q = zip(
    (1.85777706184603153e-1, 1.0),
    (3.16112374387056560e0, 2.36012909523441209e1),
    (1.13864154151050156e2, 2.44024637934444173e2),
    (3.77485237685302021e2, 1.28261652607737228e3),
    (3.20937758913846947e3, 2.84423683343917062e3),
    strict=True,
)
_FAR_P, _FAR_Q = zip(
    (2.15311535474403846e-8, 1.0),
    (5.64188496988670089e-1, 1.57449261107098347e1),
    (8.88314979438837594e0, 1.17693950891312499e2),
    (6.61191906371416295e1, 5.37181101862009858e2),
    (2.98635138197400131e2, 1.62138957456669019e3),
    (8.81952221241769090e2, 3.29079923573345963e3),
    (1.71204761263407058e3, 4.36261909014324716e3),
    (2.05107837782607147e3, 3.43936767414372164e3),
    (1.23033935479799725e3, 1.23033935480374942e3),
    strict=True,
)


def erf(x: Array) -> Array:
    """2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x, in the precision of x.

    Computed in float64 always: in float32 the quotients alone would lose two bits of the result.
    """
    # Beyond 6 the result is 1 in both precisions; there e^(-x^2) would come to nothing.
    size = np.minimum(np.abs(x.astype(np.float64)), 6.0)
    near = np.minimum(size, _NEAR)
    square = near * near
    small = near * np.polyval(_NEAR_P, square) / np.polyval(_NEAR_Q, square)
    large = 1.0 - np.exp(-size * size) * np.polyval(_FAR_P, size) / np.polyval(_FAR_Q, size)
    return np.copysign(np.where(size <= _NEAR, small, large), x).astype(x.dtype)


SCALED_TANH = 1.7159


@kernel(ops.Activation, "where")
def activation(op: ops.Activation, x: Array) -> Array:
    return activate(op.kind, x, op.alpha)


@kernel(ops.ActivationBackward, "multiply")
def activation_backward(op: ops.ActivationBackward, value: Array, dy: Array) -> Array:
    return DERIVATIVES[op.kind](value, op.alpha) * dy


@kernel(ops.Reshape, "reshape")
def reshape(op: ops.Reshape, x: Array) -> Array:
    return x.reshape(op.y.shape)


@kernel(ops.Scale, "multiply")
def scale(op: ops.Scale, x: Array) -> Array:
    return x * op.factor


@kernel(ops.Softmax, "exp")
def softmax(op: ops.Softmax, x: Array) -> Array:
    if op.log:
        return log_softmax(x)
    # Less the largest, so that no exponential overflows; the quotient stays the same.
    e = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


@kernel(ops.SoftmaxBackward, "multiply")
def softmax_backward(op: ops.SoftmaxBackward, y: Array, dy: Array) -> Array:
    if op.log:
        return np.asarray(dy - np.exp(y) * dy.sum(1, keepdims=True))
    return np.asarray(y * (dy - (y * dy).sum(1, keepdims=True)))


def log_softmax(x: Array) -> Array:
    """x - log sum of e^x over axis 1; the largest term of the sum is left to log1p."""
    first = x.argmax(1, keepdims=True)
    shifted = x - np.take_along_axis(x, first, 1)
    others = np.exp(shifted)
    np.put_along_axis(others, first, 0.0, 1)
    return np.asarray(shifted - np.log1p(others.sum(1, keepdims=True)))


def activate(kind: str, x: Array, alpha: float) -> Array:
    """y = f(x) for the activation of this name."""
    return FUNCTIONS[kind](x, alpha)


def activated(
    op: ops.MatMul | ops.Conv2d | ops.Add | ops.BatchNorm | ops.BatchNormInference, y: Array
) -> Array:
    """f(y) with the activation that a rewrite has given to the operation, y if there is none."""
    return y if op.activation is None else activate(op.activation, y, op.activation_alpha)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), by e^-|x|, which cannot overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


def softplus(x: Array) -> Array:
    """log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), the second form without overflow."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def phi(x: Array) -> Array:
    """The density of the standard normal distribution."""
    return np.exp(-0.5 * x * x) * (1.0 / sqrt(2.0 * pi))


def normal_cdf(x: Array) -> Array:
    """Phi, the distribution function of the standard normal distribution."""
    return 0.5 + 0.5 * erf(x * sqrt(0.5))


def gelu_argument(x: Array) -> Array:
    """The tanh approximation takes Phi(x) as (1 + tanh of this) / 2, the sigmoid of twice this."""
    return sqrt(2.0 / pi) * (x + 0.044715 * x * x * x)


def scaled_tanh(x: Array) -> Array:
    """1.7159 tanh(2 x / 3), LeCun et al. 1998, appendix A: f(1) = 1, f(-1) = -1 nearly."""
    return SCALED_TANH * np.tanh(x * (2.0 / 3.0))


def silu_derivative(x: Array) -> Array:
    s = sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def gelu_tanh_derivative(x: Array) -> Array:
    u = 2.0 * gelu_argument(x)
    slope = sqrt(2.0 / pi) * (2.0 + 6.0 * 0.044715 * x * x)
    return sigmoid(u) * (1.0 + x * sigmoid(-u) * slope)


def hardsigmoid(x: Array) -> Array:
    """min(max(x + 3, 0), 6) / 6."""
    return np.asarray(np.clip(x + 3.0, 0.0, 6.0) / 6.0)


def hardswish_derivative(x: Array) -> Array:
    inside = (x > -3.0) & (x < 3.0)
    return np.where(inside, np.clip(x, -3.0, 3.0) / 3.0 + 0.5, x >= 3.0)


def mish_derivative(x: Array) -> Array:
    share = np.tanh(softplus(x))
    return share + x * sigmoid(x) * (1.0 - share) * (1.0 + share)


def scaled_tanh_derivative(y: Array) -> Array:
    # The difference is exact near the ends, where the square's is lost in rounding.
    size = y.dtype.type(SCALED_TANH)
    return np.asarray((size - y) * (size + y) * (2.0 / 3.0 / SCALED_TANH))


FUNCTIONS: dict[str, Callable[[Array, float], Array]] = {
    "relu": lambda x, alpha: np.maximum(x, 0.0),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, alpha * x),
    "sigmoid": lambda x, alpha: sigmoid(x),
    "tanh": lambda x, alpha: np.tanh(x),
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
    "softplus": lambda x, alpha: softplus(x),
    "silu": lambda x, alpha: x * sigmoid(x),
    "gelu": lambda x, alpha: x * normal_cdf(x),
    "gelu_tanh": lambda x, alpha: x * sigmoid(2.0 * gelu_argument(x)),
    "relu6": lambda x, alpha: np.clip(x, 0.0, 6.0),
    "hardsigmoid": lambda x, alpha: hardsigmoid(x),
    "hardswish": lambda x, alpha: x * hardsigmoid(x),
    "mish": lambda x, alpha: x * np.tanh(softplus(x)),
    "scaled_tanh": lambda x, alpha: scaled_tanh(x),
}

# Of the output for the kinds in ops.FROM_OUTPUT, of the input for the others.
DERIVATIVES: dict[str, Callable[[Array, float], Array]] = {
    "relu": lambda y, alpha: y > 0,
    "leaky_relu": lambda y, alpha: np.where(y > 0, y.dtype.type(1), alpha),
    "sigmoid": lambda y, alpha: y * (1.0 - y),
    "tanh": lambda y, alpha: (1.0 - y) * (1.0 + y),
    "elu": lambda y, alpha: np.where(y > 0, 1.0, y + alpha),
    "softplus": lambda x, alpha: sigmoid(x),
    "silu": lambda x, alpha: silu_derivative(x),
    "gelu": lambda x, alpha: normal_cdf(x) + x * phi(x),
    "gelu_tanh": lambda x, alpha: gelu_tanh_derivative(x),
    "relu6": lambda y, alpha: (y > 0) & (y < 6),
    "hardsigmoid": lambda x, alpha: np.where((x > -3) & (x < 3), x.dtype.type(1 / 6), 0),
    "hardswish": lambda x, alpha: hardswish_derivative(x),
    "mish": lambda x, alpha: mish_derivative(x),
    "scaled_tanh": lambda y, alpha: scaled_tanh_derivative(y),
}
