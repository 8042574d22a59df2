"""What ranks do together, by a single rank."""

from __future__ import annotations

import numpy as np
from dnnstack.graph.ops import AddMetrics, AllGather, AllReduce, KeepMetrics, SkipParts

from .op_draft import Draft, case


def alone(d: Draft) -> None:
    """One rank has all values and rows; a part keeps its metrics, which the update adds up."""
    step = d.given("step", np.array([5], np.int64), "state")
    values = (d.floats("a", 3, 4, role="state"), d.floats("b", 7, role="state"))
    d.graph.add(AllReduce(values=values, ranks=1))
    d.graph.add(AllGather(rows=d.floats("rows", 4, 5, role="state"), ranks=1))
    part = d.given("part", np.array([2.5, 3.0, 8.0]), "state")
    sums = d.given("sums", np.array([10.0, 20.0, 64.0]), "state")
    kept = d.given("kept", np.arange(12.0).reshape(4, 3), "state")
    d.graph.add(KeepMetrics(step=step, sums=part, kept=kept, parts=4))
    d.graph.add(AddMetrics(kept=kept, sums=sums))
    d.graph.add(SkipParts(step=step, parts=3))


case("collectives-alone", alone)
