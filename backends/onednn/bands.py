"""Bands of rows of pictures on several ranks, row-major and in float32."""

from __future__ import annotations

from collections.abc import Callable

from ...graph.graph import Tensor
from ...graph.ops import Exchange, GatherBands, HaloExchange, HaloExchangeBackward, TakeBand
from .. import bands
from ..base import Array, BoundCall
from ..collectives import joined
from .bind import Binder, binds
from .primitive import Step


def _ends(b: Binder, x: Tensor, y: Tensor) -> tuple[Array, Array]:
    return b.plain(x).array(x.shape), b.output(y).array(y.shape)


def _run(b: Binder, op: Exchange, y: Array, make: Callable[[], Callable[[], None]]) -> None:
    """Append what ``make`` returns; nothing is made or sent where ranks are silent."""
    if op.silent:
        b.host(op, lambda: y.fill(0.0), "fill")
    elif op.ranks == 1 or isinstance(op, TakeBand):
        b.host(op, make(), "copyto")
    else:
        does = "gather" if isinstance(op, GatherBands) else "trade"
        shown = {"values": f"{op.bytes() // 4} float32", "ranks": str(op.ranks)}
        call = BoundCall(op, "MPI", joined(op.ranks).calls[does], "", shown)
        b.steps.append(Step(make(), (), call))


@binds(HaloExchange)
def halo_exchange(b: Binder, op: HaloExchange) -> None:
    x, y = _ends(b, op.x, op.y)

    def make() -> Callable[[], None]:
        halo = bands.Halo(op, lambda size: b.scratch_array((size,)))
        return lambda: halo.forward(x, y, op.fill)

    _run(b, op, y, make)


@binds(HaloExchangeBackward)
def halo_exchange_backward(b: Binder, op: HaloExchangeBackward) -> None:
    dy, dx = _ends(b, op.dy, op.dx)

    def make() -> Callable[[], None]:
        halo = bands.Halo(op, lambda size: b.scratch_array((size,)))
        return lambda: halo.backward(dy, dx)

    _run(b, op, dx, make)


@binds(GatherBands)
def gather_bands(b: Binder, op: GatherBands) -> None:
    x, y = _ends(b, op.x, op.y)
    every = b.scratch_array((op.ranks, *x.shape))
    _run(b, op, y, lambda: lambda: bands.gather(op, x, every, y))


@binds(TakeBand)
def take_band(b: Binder, op: TakeBand) -> None:
    x, y = _ends(b, op.x, op.y)
    _run(b, op, y, lambda: lambda: bands.take(op, x, y))
