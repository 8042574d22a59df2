"""Bands of rows of pictures on several ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph import ops
from .. import bands
from ..base import Array
from .kernels import kernel


def _exchanged(op: ops.Exchange, x: Array, does: Callable[[Any, Array, Array], None]) -> Array:
    """What ``does`` writes, or zeros where ranks are silent."""
    (y,) = op.writes()
    found = np.zeros(y.shape, x.dtype)
    if not op.silent:
        does(op, x, found)
    return found


@kernel(ops.HaloExchange, "copy")
def halo_exchange(op: ops.HaloExchange, x: Array) -> Array:
    return _exchanged(op, x, bands.exchange)


@kernel(ops.HaloExchangeBackward, "add")
def halo_exchange_backward(op: ops.HaloExchangeBackward, dy: Array) -> Array:
    return _exchanged(op, dy, bands.exchange_back)


@kernel(ops.GatherBands, "copy")
def gather_bands(op: ops.GatherBands, x: Array) -> Array:
    room = np.empty((op.ranks, *x.shape), x.dtype)
    return _exchanged(op, x, lambda op, x, y: bands.gather(op, x, room, y))


@kernel(ops.TakeBand, "copy")
def take_band(op: ops.TakeBand, x: Array) -> Array:
    return _exchanged(op, x, bands.take)
