"""Bands of rows of pictures on several ranks, row-major and in float32."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...graph.ops import Exchange, GatherBands, HaloExchange, HaloExchangeBackward, TakeBand
from .. import bands
from ..base import Array
from .bind import Binder, binds
from .collectives import ends, sent


def _run(b: Binder, op: Exchange, y: Array, make: Callable[[], Callable[[], None]]) -> None:
    """Append what ``make`` returns; nothing is made or sent where ranks are silent."""
    if op.silent:
        b.host(op, lambda: y.fill(0.0), "fill")
    elif op.ranks == 1 or isinstance(op, TakeBand):
        b.host(op, make(), "copyto")
    else:
        does = "gather" if isinstance(op, GatherBands) else "trade"
        sent(b, op, make(), op.bytes() // 4, does)


@binds(HaloExchangeBackward)
@binds(HaloExchange)
def halo_exchange(b: Binder, op: HaloExchange | HaloExchangeBackward) -> None:
    x, y = ends(b, op)

    def make() -> Callable[[], None]:
        halo = bands.Halo(op, lambda size: b.scratch_array((size,)))
        if isinstance(op, HaloExchange):
            return partial(halo.forward, x, y, op.fill)
        return partial(halo.backward, x, y)

    _run(b, op, y, make)


@binds(GatherBands)
def gather_bands(b: Binder, op: GatherBands) -> None:
    x, y = ends(b, op)
    every = b.scratch_array((op.ranks, *x.shape))
    _run(b, op, y, lambda: lambda: bands.gather(op, x, every, y))


@binds(TakeBand)
def take_band(b: Binder, op: TakeBand) -> None:
    x, y = ends(b, op)
    _run(b, op, y, lambda: lambda: bands.take(op, x, y))
