"""What a file of the format ``numpy`` is made of: each function is copied where it is called."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any


def windows(x: Array, kernel: Any, stride: Any, padding: Any, dilation: Any, fill: float) -> Array:
    """(N, C, P, Q, kh, kw): what a window sees at each place of x: (N, C, H, W)."""
    top, bottom, left, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True))
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    return seen[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]


def conv2d(
    x: Array, w: Array, b: Array, stride: Any, padding: Any, dilation: Any, groups: int
) -> Array:
    """x: (N, C, H, W), w: (O, C / groups, kh, kw), b: (O,) -> (N, O, P, Q)."""
    seen = windows(x, w.shape[2:], stride, padding, dilation, 0)
    n, c, p, q = seen.shape[:4]
    seen = seen.reshape(n, groups, c // groups, p, q, -1).transpose(0, 1, 3, 4, 2, 5)
    rows = seen.reshape(n, groups, p * q, -1)
    y = rows @ w.reshape(groups, len(w) // groups, -1).transpose(0, 2, 1)
    y = y.transpose(0, 1, 3, 2).reshape(n, len(w), p, q)
    return y if b is None else y + b[:, None, None]


def matmul(a: Array, b: Array, transpose_a: bool, transpose_b: bool, bias: Array) -> Array:
    y = (a.T if transpose_a else a) @ (b.T if transpose_b else b)
    return y if bias is None else y + bias


def max_pool(x: Array, kernel: Any, stride: Any, padding: Any) -> Array:
    return windows(x, kernel, stride, padding, (1, 1), -math.inf).max((4, 5))


def avg_pool(x: Array, kernel: Any, stride: Any, padding: Any) -> Array:
    """The mean over the pixels inside the picture."""
    inside = windows(np.ones((1, 1, *x.shape[2:])), kernel, stride, padding, (1, 1), 0).sum((4, 5))
    total = windows(x, kernel, stride, padding, (1, 1), 0).sum((4, 5))
    return (total / inside).astype(x.dtype)


def along(v: Array, x: Array) -> Array:
    """v: (C,), shaped to be used with x: (N, C, ...)."""
    return v.reshape(-1, *[1] * (x.ndim - 2))


def bias_add(x: Array, b: Array) -> Array:
    return x + along(b, x)


def channel_scale(x: Array, s: Array, factor: float) -> Array:
    return x * along(np.float32(factor) * s, x)


def scale(x: Array, factor: float) -> Array:
    return x * np.float32(factor)


def add(*terms: Array) -> Array:
    return sum(terms[1:], terms[0])


def concat(*parts: Array) -> Array:
    return np.concatenate(parts, 1)


def part(x: Array, begin: int, end: int) -> Array:
    return x[:, begin:end]


def reshape(x: Array, shape: Any) -> Array:
    return x.reshape(-1, *shape)


def heaviside(x: Array) -> Array:
    return (x > 0).astype(np.float32)


def batch_norm(x: Array, weight: Array, bias: Array, mean: Array, var: Array, eps: float) -> Array:
    scale = (1 if weight is None else weight) / np.sqrt(var + np.float32(eps))
    shift = (0 if bias is None else bias) - mean * scale
    return x * along(scale, x) + along(shift, x)


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def leaky_relu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, x * np.float32(alpha))


def sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def tanh(x: Array) -> Array:
    return np.tanh(x)


def elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def gelu(x: Array) -> Array:
    erf = np.vectorize(math.erf, otypes=[np.float32])
    return x * (1 + erf(x * np.float32(math.sqrt(0.5)))) * np.float32(0.5)


def gelu_tanh(x: Array) -> Array:
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def scaled_tanh(x: Array) -> Array:
    return np.float32(1.7159) * np.tanh(x * np.float32(2 / 3))


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def log_softmax(x: Array) -> Array:
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def lrn(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """Over the channels near each; the divisor is ``size`` at the ends, too."""
    squares = np.pad(x * x, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    total = sum(squares[:, at : at + x.shape[1]] for at in range(size))
    return x * (k + alpha / size * total) ** np.float32(-beta)


def divisive_norm(x: Array, size: int, alpha: float, beta: float, k: float) -> Array:
    """Over the pixels near each, of the same channel."""
    half = size // 2
    squares = windows(x * x, (size, size), (1, 1), (half,) * 4, (1, 1), 0).sum((4, 5))
    return x * (k + alpha / size**2 * squares) ** np.float32(-beta)


def pad(x: Array, padding: Any, value: float) -> Array:
    top, bottom, left, right = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def pad_channels(x: Array, channels: int) -> Array:
    return np.pad(x, ((0, 0), (0, channels - x.shape[1]), *[(0, 0)] * (x.ndim - 2)))


def rbf(x: Array, centres: Array) -> Array:
    """(N, K): minus the squared distance to each centre."""
    return -np.square(x[:, None] - centres).sum(2)


def wide(x: Array) -> Array:
    """Where sums of products of integers are exact."""
    return x.astype(float)


def quantize(x: Array, scale: float, low: int, high: int) -> Array:
    """The nearest integers of x / scale within the bounds."""
    return np.clip(np.rint(x / np.float32(scale)), low, high)


def scaled(total: Array, s: Array, b: Array, floor: bool) -> Array:
    """The numbers that sums of products of integers stand for; ``floor``: none below 0."""
    y = total * along(s, total) + along(b, total)
    return (np.maximum(y, 0) if floor else y).astype(np.float32)
