"""Bands of rows of pictures on several ranks."""

from __future__ import annotations

import numpy as np

from ...graph import ops
from .. import bands
from ..base import Array
from .kernels import kernel


@kernel(ops.HaloExchange, "copy")
def halo_exchange(op: ops.HaloExchange, x: Array) -> Array:
    y = np.zeros(op.y.shape, x.dtype)
    if not op.silent:
        bands.exchange(op, x, y)
    return y


@kernel(ops.HaloExchangeBackward, "add")
def halo_exchange_backward(op: ops.HaloExchangeBackward, dy: Array) -> Array:
    dx = np.zeros(op.dx.shape, dy.dtype)
    if not op.silent:
        bands.exchange_back(op, dy, dx)
    return dx


@kernel(ops.GatherBands, "copy")
def gather_bands(op: ops.GatherBands, x: Array) -> Array:
    y = np.zeros(op.y.shape, x.dtype)
    if not op.silent:
        bands.gather(op, x, np.empty((op.ranks, *x.shape), x.dtype), y)
    return y


@kernel(ops.TakeBand, "copy")
def take_band(op: ops.TakeBand, x: Array) -> Array:
    y = np.zeros(op.y.shape, x.dtype)
    if not op.silent:
        bands.take(op, x, y)
    return y
