"""What LeNet-5 and the perceptron need; see ops/classic.py for the formulas."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from ...graph import ops
from ..base import Array
from .kernels import kernel
from .linear import along_channels, over_channels


@kernel(ops.Pad2d, "full")
def pad2d(op: ops.Pad2d, x: Array) -> Array:
    top, _, left, _ = op.padding
    h, w = x.shape[2:]
    y = np.full(op.y.shape, op.value, x.dtype)
    y[:, :, top : top + h, left : left + w] = x
    return y


@kernel(ops.Pad2dBackward, "copy")
def pad2d_backward(op: ops.Pad2dBackward, dy: Array) -> Array:
    top, _, left, _ = op.padding
    h, w = op.dx.shape[2:]
    return dy[:, :, top : top + h, left : left + w]


@kernel(ops.GateChannels, "multiply")
@kernel(ops.ChannelScale, "multiply")
def channel_scale(op: ops.ChannelScale, x: Array, s: Array) -> Array:
    return along_channels(op.factor * s, x) * x


@kernel(ops.ChannelScaleBackward, "multiply, sum")
def channel_scale_backward(
    op: ops.ChannelScaleBackward, x: Array, s: Array, dy: Array
) -> tuple[Array, Array]:
    return along_channels(op.factor * s, x) * dy, op.factor * over_channels(dy * x)


@kernel(ops.ConnectFilters, "put")
def connect_filters(op: ops.ConnectFilters, weights: Array) -> Array:
    filters = np.zeros(op.filters.shape, weights.dtype)
    filters[_connected(op.pairs)] = weights
    return filters


@kernel(ops.ConnectFiltersBackward, "take")
def connect_filters_backward(op: ops.ConnectFiltersBackward, dfilters: Array) -> Array:
    return dfilters[_connected(op.pairs)]


@lru_cache
def _connected(pairs: tuple[tuple[int, int], ...]) -> tuple[Array, ...]:
    """The outputs, and the inputs: arrays, for lists would be converted in every step."""
    return tuple(np.array(pairs).T)


@kernel(ops.Rbf, "subtract, square")
def rbf(op: ops.Rbf, x: Array) -> Array:
    away = x[:, None, :] - _centres(op.centres, x.dtype)
    return np.asarray(-(away * away).sum(2))


@kernel(ops.RbfBackward, "matmul")
def rbf_backward(op: ops.RbfBackward, x: Array, dy: Array) -> Array:
    centres = _centres(op.centres, x.dtype)
    return np.asarray(2.0 * (dy @ centres - dy.sum(1, keepdims=True) * x))


@lru_cache
def _centres(centres: tuple[tuple[float, ...], ...], dtype: np.dtype[Any]) -> Array:
    return np.array(centres, dtype)


@kernel(ops.Heaviside, "greater")
def heaviside(op: ops.Heaviside, x: Array) -> Array:
    return np.asarray(x > 0, x.dtype)
