"""What LeNet-5 and the perceptron need: kernels of ours on plain float32."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ....graph.graph import Op, Tensor
from ....graph.ops import (
    ChannelScale,
    ChannelScaleBackward,
    ConnectFilters,
    ConnectFiltersBackward,
    Heaviside,
    Pad2d,
    Pad2dBackward,
    Rbf,
    RbfBackward,
)
from ..binding.bind import Binder, binds
from ..binding.store import Buffer
from ..libraries.kernels import f32, i32, i64, linear_grid
from ..libraries.layout import FLOAT


def _kernel(b: Binder, op: Op, name: str, size: int, arguments: tuple[Any, ...]) -> None:
    b.kernel(op, ("classic.cu", name), linear_grid(size), arguments)


def _border(b: Binder, inner: Tensor, outer: Tensor, padding: tuple[int, int, int, int]) -> Any:
    """struct Border of classic.cu."""
    return b.numbers(*inner.shape[2:], *outer.shape[2:], padding[0], padding[2])


@binds(Pad2d)
def pad2d(b: Binder, op: Pad2d) -> None:
    border = _border(b, op.x, op.y, op.padding)
    arguments = (b.floats(op.x).array, b.output(op.y).array, i64(op.y.size), border, f32(op.value))
    _kernel(b, op, "pad2d", op.y.size, arguments)


@binds(Pad2dBackward)
def pad2d_backward(b: Binder, op: Pad2dBackward) -> None:
    border = _border(b, op.dx, op.dy, op.padding)
    arguments = (b.floats(op.dy).array, b.output(op.dx).array, i64(op.dx.size), border)
    _kernel(b, op, "pad2d_backward", op.dx.size, arguments)


def _scaled(
    b: Binder, op: ChannelScale | ChannelScaleBackward, source: Buffer, target: Buffer
) -> None:
    _, channels, *rest = op.x.shape
    numbers = (i64(op.x.size), i32(channels), i32(prod(rest)), f32(op.factor))
    arguments = (source.array, b.floats(op.s).array, target.array, *numbers)
    _kernel(b, op, "channel_scale", op.x.size, arguments)


@binds(ChannelScale)
def channel_scale(b: Binder, op: ChannelScale) -> None:
    _scaled(b, op, b.floats(op.x), b.output(op.y))


@binds(ChannelScaleBackward)
def channel_scale_backward(b: Binder, op: ChannelScaleBackward) -> None:
    x, dy = b.floats(op.x), b.floats(op.dy)
    _scaled(b, op, dy, b.output(op.dx))
    n, channels, *rest = op.x.shape
    ds = b.output(op.ds, b.planned(op.ds))
    numbers = (i32(n), i32(channels), i32(prod(rest)), f32(op.factor))
    kernel = ("classic.cu", "channel_scale_gradient")
    b.kernel(op, kernel, (channels,), (x.array, dy.array, ds.array, *numbers))


def _planes(b: Binder, filters: Tensor, pairs: Sequence[tuple[int, int]]) -> Any:
    """Which plane of the filters each pair is."""
    return b.numbers(*(o * filters.shape[1] + c for o, c in pairs))


@binds(ConnectFilters)
def connect_filters(b: Binder, op: ConnectFilters) -> None:
    weights, filters = b.floats(op.weights), b.output(op.filters)
    numbers = (i32(op.filters.size), i32(prod(op.weights.shape[1:])))
    outputs, inputs = op.filters.shape[:2]
    pair = {pair: index for index, pair in enumerate(op.pairs)}
    table = (pair.get((o, c), -1) for o in range(outputs) for c in range(inputs))
    arguments = (weights.array, filters.array, *numbers, b.numbers(*table))
    _kernel(b, op, "connect", op.filters.size, arguments)


@binds(ConnectFiltersBackward)
def connect_filters_backward(b: Binder, op: ConnectFiltersBackward) -> None:
    dfilters, dweights = b.floats(op.dfilters), b.output(op.dweights, b.planned(op.dweights))
    numbers = (i32(op.dweights.size), i32(prod(op.dweights.shape[1:])))
    arguments = (dfilters.array, dweights.array, *numbers, _planes(b, op.dfilters, op.pairs))
    _kernel(b, op, "connect_backward", op.dweights.size, arguments)


def _centres(b: Binder, op: Rbf | RbfBackward) -> Any:
    return b.keep(b.cupy.asarray(np.asarray(op.centres, FLOAT)))


@binds(Rbf)
def rbf(b: Binder, op: Rbf) -> None:
    n, inputs = op.x.shape
    numbers = (i32(n), i32(len(op.centres)), i32(inputs))
    arguments = (b.floats(op.x).array, _centres(b, op), b.output(op.y).array, *numbers)
    _kernel(b, op, "rbf", op.y.size, arguments)


@binds(RbfBackward)
def rbf_backward(b: Binder, op: RbfBackward) -> None:
    n, inputs = op.x.shape
    operands = (b.floats(op.x).array, b.floats(op.dy).array, _centres(b, op))
    numbers = (i32(n), i32(len(op.centres)), i32(inputs))
    _kernel(b, op, "rbf_backward", op.x.size, (*operands, b.output(op.dx).array, *numbers))


@binds(Heaviside)
def heaviside(b: Binder, op: Heaviside) -> None:
    """In the layout of x: padding stays 0."""
    layout = b.home(op.x).layout.as_float()
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    _kernel(b, op, "heaviside", layout.size, (x.array, y.array, i64(layout.size)))
