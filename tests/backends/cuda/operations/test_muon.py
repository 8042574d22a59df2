"""Muon's iterations on several streams, on the stand-in for a device."""

from __future__ import annotations

import pytest
from dnnstack.graph.ops import MuonUpdate
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing


def steps_of_muon(bound, sections, streams):
    """The network's filters are of two heights, so of two groups."""
    network, scaling = sections.network("cifar"), Preprocessing.standardize([0.5] * 3, [0.2] * 3)
    graph = network.train_graph(16, "data", 64, 4, 8, scaling, Muon(rest=Sgd(), iterations=2))
    executable, _ = bound({"train": graph}, choices={"layout": "nhwc", "streams": streams})
    (binder,) = executable.binders()
    ours = [s for s in binder.steps if s.call is not None and isinstance(s.call.op, MuonUpdate)]
    return binder.steps, ours


@pytest.mark.parametrize(("streams", "lanes"), [("1", {0}), ("2", {0, 1}), ("3", {0, 1})])
def test_groups_of_filters_go_beside_each_other(streams, lanes, bound, sections):
    steps, ours = steps_of_muon(bound, sections, streams)
    products = [step for step in ours if step.call.function == "cublasLtMatmul"]
    assert len(products) == 2 * 2 * 3
    assert {step.stream for step in products} == lanes
    of_a_lane = [[s for s in products if s.stream == lane] for lane in lanes]
    assert len({len(each) for each in of_a_lane}) == 1
    if len(lanes) == 1:
        return
    # The other stream waits for what is normalised, but not for products; the update for both.
    place = {id(step): at for at, step in enumerate(steps)}
    (normalized,) = (s for s in ours if s.call.function == "muon_normalize")
    (update,) = (s for s in ours if s.call.function == "muon_update")
    first, last = of_a_lane[1][0], of_a_lane[1][-1]
    assert place[id(of_a_lane[0][0])] > place[id(last)]
    waits = [at for at, step in enumerate(steps) if step.call is None]
    before = [at for at in waits if place[id(normalized)] < at < place[id(first)]]
    behind = [at for at in waits if place[id(last)] < at < place[id(update)]]
    assert [steps[at].stream for at in before] == [1]
    assert [steps[at].stream for at in behind] == [0]
