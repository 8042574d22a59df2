"""What a file of the format ``numpy`` is made of: each function is copied where it is called."""

from __future__ import annotations

import math

import numpy as np


def windows(x, kernel, stride, padding, dilation, fill):
    """(N, C, kh, kw, P, Q): what x: (N, C, H, W) has at each place of a window, for all windows."""
    x = pad(x, padding, fill)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
    seen = seen[:, :, :: stride[0], :: stride[1], :: dilation[0], :: dilation[1]]
    return seen.transpose(0, 1, 4, 5, 2, 3)


def conv2d(x, w, b=None, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    """x: (N, C, H, W), w: (O, C / groups, kh, kw), b: (O,) -> (N, O, P, Q)."""
    seen = windows(x, w.shape[2:], stride, padding, dilation, 0)
    p, q = seen.shape[4:]
    columns = seen.reshape(len(x), groups, -1, p * q)
    y = w.reshape(groups, len(w) // groups, -1) @ columns
    y = y.reshape(len(x), len(w), p, q)
    return y if b is None else y + b[:, None, None]


def matmul(x, w, b=None):
    """x: (N, K), w: (O, K), b: (O,) -> (N, O)."""
    return x @ w.T if b is None else x @ w.T + b


def max_pool(x, kernel, stride, padding=(0, 0, 0, 0)):
    seen = windows(x, kernel, stride, padding, (1, 1), -math.inf)
    y = seen[:, :, 0, 0]
    for row, column in np.ndindex(*kernel):
        y = np.maximum(y, seen[:, :, row, column])
    return y


def sum_pool(x, kernel, stride, padding):
    seen = windows(x, kernel, stride, padding, (1, 1), 0)
    return sum(seen[:, :, row, column] for row, column in np.ndindex(*kernel))


def avg_pool(x, kernel, stride, padding=(0, 0, 0, 0)):
    """The mean over the pixels inside the picture."""
    inside = sum_pool(np.ones_like(x[:1, :1]), kernel, stride, padding)
    return sum_pool(x, kernel, stride, padding) / inside


def along(v, x):
    """v: (C,), shaped to be used with x: (N, C, ...)."""
    return v.reshape(-1, *[1] * (x.ndim - 2))


def affine(x, scale, shift):
    return x * along(scale, x) + along(shift, x)


def add(*terms):
    return sum(terms[1:], terms[0])


def concat(*parts):
    return np.concatenate(parts, 1)


def part(x, begin, end):
    return x[:, begin:end]


def reshape(x, shape):
    return x.reshape(-1, *shape)


def heaviside(x):
    return (x > 0).astype(np.float32)


def relu(x):
    return np.maximum(x, 0)


def relu6(x):
    return np.clip(x, 0, 6)


def hardsigmoid(x):
    return np.clip(x + 3, 0, 6) / 6


def hardswish(x):
    return x * hardsigmoid(x)


def mish(x):
    return x * np.tanh(softplus(x))


def leaky_relu(x, alpha):
    return np.where(x > 0, x, x * np.float32(alpha))


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)


def tanh(x):
    return np.tanh(x)


def elu(x, alpha):
    return np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    """x times the normal distribution function, by formula 7.1.26 of Abramowitz and Stegun."""
    v = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * v)
    tail = np.float32(1.061405429) * t - np.float32(1.453152027)
    for c in (1.421413741, -0.284496736, 0.254829592):
        tail = tail * t + np.float32(c)
    tail = np.float32(0.5) * tail * t * np.exp(-v * v)
    return x * np.where(x > 0, 1 - tail, tail)


def gelu_tanh(x):
    inner = np.float32(math.sqrt(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
    return np.float32(0.5) * x * (1 + np.tanh(inner))


def scaled_tanh(x):
    return np.float32(1.7159) * np.tanh(x * np.float32(2 / 3))


def softmax(x):
    powers = np.exp(x - x.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def log_softmax(x):
    x = x - x.max(1, keepdims=True)
    return x - np.log(np.exp(x).sum(1, keepdims=True))


def lrn(x, size, alpha, beta, k):
    """Over the channels near each; the divisor is ``size`` at the ends, too."""
    squares = np.pad(x * x, ((0, 0), (size // 2, size // 2), (0, 0), (0, 0)))
    total = sum(squares[:, at : at + x.shape[1]] for at in range(size))
    return x * (k + alpha / size * total) ** np.float32(-beta)


def divisive_norm(x, size, alpha, beta, k):
    """Over the pixels near each, of the same channel."""
    squares = sum_pool(x * x, (size, size), (1, 1), (size // 2,) * 4)
    return x * (k + alpha / size**2 * squares) ** np.float32(-beta)


def pad(x, padding, value):
    top, bottom, left, right = padding
    return np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=value)


def pad_channels(x, channels):
    return np.pad(x, ((0, 0), (0, channels - x.shape[1]), *[(0, 0)] * (x.ndim - 2)))


def rbf(x, centres):
    """(N, K): minus the squared distance to each centre."""
    return -np.square(x[:, None] - centres).sum(2)


def wide(x):
    """Where sums of products of integers are exact."""
    return x.astype(float)


def quantize(x, scale, low, high):
    """The nearest integers of x / scale within the bounds."""
    return np.clip(np.rint(x / np.float32(scale)), low, high)


def scaled(total, s, b, floor):
    """The numbers that sums of products of integers stand for; ``floor``: none below 0."""
    y = total * along(s, total) + along(b, total)
    return (np.maximum(y, 0) if floor else y).astype(np.float32)
