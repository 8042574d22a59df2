"""What LeNet-5 and the perceptron need: kernels of ours on plain float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ....graph import ops
from ....graph.graph import Op, Tensor
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..libraries.kernels import f32, i64
from ..libraries.layout import FLOAT


def _kernel(
    b: Binder, op: Op, name: str, operands: Sequence[Any], target: Tensor, *numbers: Any
) -> None:
    """A thread for each number of the target."""
    arguments = (*operands, b.output(target), *numbers)
    b.kernel(op, ("classic.cu", name), target.size, arguments)


def _border(b: Binder, inner: Tensor, outer: Tensor, padding: tuple[int, int, int, int]) -> Any:
    """struct Border of classic.cu."""
    return b.numbers(*inner.shape[2:], *outer.shape[2:], padding[0], padding[2])


@binds(ops.Pad2d)
def pad2d(b: Binder, op: ops.Pad2d) -> None:
    border = _border(b, op.x, op.y, op.padding)
    _kernel(b, op, "pad2d", [b.floats(op.x)], op.y, i64(op.y.size), border, f32(op.value))


@binds(ops.Pad2dBackward)
def pad2d_backward(b: Binder, op: ops.Pad2dBackward) -> None:
    border = _border(b, op.dx, op.dy, op.padding)
    _kernel(b, op, "pad2d_backward", [b.floats(op.dy)], op.dx, i64(op.dx.size), border)


def _scaled(
    b: Binder, op: ops.ChannelScale | ops.ChannelScaleBackward, source: Buffer, target: Tensor
) -> None:
    _, channels, *rest = op.x.shape
    numbers = (i64(op.x.size), channels, prod(rest), f32(op.factor))
    _kernel(b, op, "channel_scale", [source, b.floats(op.s)], target, *numbers)


@binds(ops.GateChannels)
@binds(ops.ChannelScale)
def channel_scale(b: Binder, op: ops.ChannelScale) -> None:
    _scaled(b, op, b.floats(op.x), op.y)


@binds(ops.ChannelScaleBackward)
def channel_scale_backward(b: Binder, op: ops.ChannelScaleBackward) -> None:
    x, dy = b.floats(op.x), b.floats(op.dy)
    _scaled(b, op, dy, op.dx)
    n, channels, *rest = op.x.shape
    arguments = (x, dy, b.output(op.ds), n, channels, prod(rest), f32(op.factor))
    b.kernel(op, ("classic.cu", "channel_scale_gradient"), (channels,), arguments)


@binds(ops.ConnectFilters)
def connect_filters(b: Binder, op: ops.ConnectFilters) -> None:
    """Which pair's weights each plane of the filters has, -1 for zeros."""
    pair = {pair: index for index, pair in enumerate(op.pairs)}
    table = [pair.get(place, -1) for place in np.ndindex(op.filters.shape[:2])]
    numbers = (op.filters.size, prod(op.weights.shape[1:]), b.numbers(*table))
    _kernel(b, op, "connect", [b.floats(op.weights)], op.filters, *numbers)


@binds(ops.ConnectFiltersBackward)
def connect_filters_backward(b: Binder, op: ops.ConnectFiltersBackward) -> None:
    """Which plane of the filters each pair is."""
    planes = b.numbers(*(o * op.dfilters.shape[1] + c for o, c in op.pairs))
    numbers = (op.dweights.size, prod(op.dweights.shape[1:]), planes)
    _kernel(b, op, "connect", [b.floats(op.dfilters)], op.dweights, *numbers)


def _centres(b: Binder, op: ops.Rbf | ops.RbfBackward) -> Any:
    return b.upload(np.asarray(op.centres, FLOAT))


@binds(ops.Rbf)
def rbf(b: Binder, op: ops.Rbf) -> None:
    n, inputs = op.x.shape
    operands = (b.floats(op.x), _centres(b, op))
    _kernel(b, op, "rbf", operands, op.y, n, len(op.centres), inputs)


@binds(ops.RbfBackward)
def rbf_backward(b: Binder, op: ops.RbfBackward) -> None:
    n, inputs = op.x.shape
    operands = (b.floats(op.x), b.floats(op.dy), _centres(b, op))
    _kernel(b, op, "rbf_backward", operands, op.dx, n, len(op.centres), inputs)


@binds(ops.Heaviside)
def heaviside(b: Binder, op: ops.Heaviside) -> None:
    """In the layout of x: padding stays 0."""
    layout = replace(b.home(op.x).layout, dtype=FLOAT)
    ends = (b.want(op.x, layout), b.output(op.y, layout))
    b.kernel(op, ("classic.cu", "heaviside"), layout.size, (*ends, i64(layout.size)))
