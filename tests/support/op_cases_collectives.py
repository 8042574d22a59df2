"""What ranks do together, by a single rank."""

from __future__ import annotations

import numpy as np
from dnnstack.graph import ops

from .op_draft import Draft, case


def alone(d: Draft) -> None:
    """One rank has all values and rows; a part keeps its metrics, which the update adds up."""
    step = d.given("step", np.array([5], np.int64), "state")
    values = (d.floats("a", 3, 4, role="state"), d.floats("b", 7, role="state"))
    d.graph.add(ops.AllReduce(values=values, ranks=1))
    d.graph.add(ops.AllGather(rows=d.floats("rows", 4, 5, role="state"), ranks=1))
    part = d.given("part", np.array([2.5, 3.0, 8.0]), "state")
    sums = d.given("sums", np.array([10.0, 20.0, 64.0]), "state")
    kept = d.given("kept", np.arange(12.0).reshape(4, 3), "state")
    d.graph.add(ops.KeepMetrics(step=step, sums=part, kept=kept, parts=4))
    d.graph.add(ops.AddMetrics(kept=kept, sums=sums))
    d.graph.add(ops.SkipParts(step=step, parts=3))


def unsplit(d: Draft, *rest: int) -> None:
    """One rank has all rows and all units already."""
    x, y = d.floats("x", 6, 5, *rest), d.out("y", 6, 5, *rest)
    d.graph.add(ops.GatherRows(x=x, y=y, ranks=1))
    d.graph.add(ops.GatherRowsBackward(dy=x, dx=d.out("dx", 6, 5, *rest), ranks=1))
    d.graph.add(ops.ExchangeUnits(x=y, y=d.out("units", 6, 5, *rest), ranks=1))
    d.graph.add(ops.ExchangeUnitsBackward(dy=y, dx=d.out("dunits", 6, 5, *rest), ranks=1))


def joined_norms(d: Draft) -> None:
    norms, own = d.floats("norms", 4), d.floats("own", 1)
    d.graph.add(ops.JoinNorms(norms=norms, own=own, norm=d.out("norm", 1)))
    d.graph.add(ops.JoinNorms(norms=norms, norm=d.out("norm_alone", 1)))


def one_band(d: Draft) -> None:
    """One rank has all rows; windows reach beyond them."""
    x, at = d.floats("x", 2, 3, 6, 5), {"ranks": 1, "step": 6, "before": 2}
    window, band = (2, 3, 9, 5), (2, 3, 6, 5)
    d.graph.add(ops.TakeBand(x=x, y=d.out("taken", *window), fill=-1.0, **at))
    d.graph.add(ops.HaloExchange(x=x, y=d.out("halo", *window), height=6, fill=-1.0, **at))
    dy = d.floats("dy", *window)
    d.graph.add(ops.HaloExchangeBackward(dy=dy, dx=d.out("dx", *band), height=6, **at))
    d.graph.add(ops.GatherBands(x=x, y=d.out("whole", *band), ranks=1))


case("collectives-alone", alone)
case("collectives-one-band", one_band)
case("collectives-unsplit-rows", unsplit)
case("collectives-unsplit-pictures", unsplit, 4, 3)
case("collectives-norms", joined_norms)
