"""What ranks do together, over whatever connection this process has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph import ops
from .. import bands
from ..base import Array
from ..collectives import added_in_pairs, joined
from .kernels import kernel
from .step import Arrays


@kernel(ops.AllReduce, "concatenate")
def all_reduce(op: ops.AllReduce, values: Arrays) -> Arrays:
    flat = np.concatenate([value.reshape(-1) for value in values])
    if op.ranks > 1:
        joined(op.ranks).sum(flat)
    ends = np.cumsum([value.size for value in values])[:-1]
    parts = zip(np.split(flat, ends), values, strict=True)
    return tuple(part.reshape(value.shape) for part, value in parts)


@kernel(ops.AllGather, "copy")
def all_gather(op: ops.AllGather, rows: Array) -> Array:
    found = rows.copy()
    if op.ranks > 1:
        joined(op.ranks).gather(found)
    return found


@kernel(ops.KeepMetrics, "copy")
def keep_metrics(op: ops.KeepMetrics, step: Array, sums: Array, kept: Array) -> tuple[Array, Array]:
    found = kept.copy()
    found[int(step[0]) % op.parts] = sums
    return np.zeros_like(sums), found


@kernel(ops.AddMetrics, "add")
def add_metrics(op: ops.AddMetrics, kept: Array, sums: Array) -> Array:
    total = sums.copy()
    for row in kept:
        total += row
    return total


def _swapped(op: ops.Exchange, sent: Array) -> Array:
    """Of all ranks what they have for this one: (ranks, ...), as ``sent`` has it for each."""
    received = np.zeros_like(sent)
    if op.ranks == 1:
        received[:] = sent
    elif not op.silent:
        joined(op.ranks).swap(np.ascontiguousarray(sent), received)
    return received


@kernel(ops.GatherRows, "copy")
def gather_rows(op: ops.GatherRows, x: Array) -> Array:
    rows = np.zeros((op.ranks, *x.shape), x.dtype)
    if op.ranks == 1:
        rows[0] = x
    elif not op.silent:
        ranks = joined(op.ranks)
        rows[ranks.rank] = x
        ranks.gather(rows)
    return rows.reshape(op.y.shape)


@kernel(ops.GatherRowsBackward, "add")
def gather_rows_backward(op: ops.GatherRowsBackward, dy: Array) -> Array:
    return added_in_pairs(_swapped(op, dy.reshape(op.ranks, *op.dx.shape)))


@kernel(ops.ExchangeUnits, "copy")
def exchange_units(op: ops.ExchangeUnits, x: Array) -> Array:
    n, units, *rest = op.x.shape
    blocks = _swapped(op, x.reshape(op.ranks, n // op.ranks, units, *rest))
    return np.ascontiguousarray(np.moveaxis(blocks, 0, 1)).reshape(op.y.shape)


@kernel(ops.ExchangeUnitsBackward, "copy")
def exchange_units_backward(op: ops.ExchangeUnitsBackward, dy: Array) -> Array:
    n, units, *rest = op.dy.shape
    blocks = np.moveaxis(dy.reshape(n, op.ranks, units // op.ranks, *rest), 1, 0)
    return _swapped(op, np.ascontiguousarray(blocks)).reshape(op.dx.shape)


@kernel(ops.JoinNorms, "sqrt")
def join_norms(op: ops.JoinNorms, norms: Array, own: Array | None) -> Array:
    squares = float(np.vdot(norms, norms)) + (0.0 if own is None else float(own[0]) ** 2)
    return np.array([np.sqrt(squares)], norms.dtype)


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
