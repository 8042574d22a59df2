"""Graphs of convolutions that a handle keeps: made once, shared, and let go of in time."""

from __future__ import annotations

import gc
from dataclasses import fields, replace

import pytest
from dnnstack.backends.cuda import backend as backend_module
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.libraries import cudnn_library
from dnnstack.backends.cuda.libraries.conv_graph import ConvGraph
from dnnstack.backends.cuda.libraries.conv_plans import WORKSPACE_LIMIT, ConvSpec
from dnnstack.backends.cuda.libraries.cudnn_library import MOST_BUILT, Cudnn
from dnnstack.backends.cuda.libraries.layout import BFLOAT
from dnnstack.backends.cuda.libraries.operand import Operand
from dnnstack.common.errors import BackendUnavailableError, CudnnError
from dnnstack.graph.geometry import Window

from ....support.convolutions import BASE, SIZES, forward, operand, operands


def test_the_second_equal_convolution_makes_no_graph_and_builds_and_tries_no_plan(
    library, frontend, trials, fake_cuda
):
    """Nor does it take memory for a trial."""
    first = forward(library)
    first.choose()
    wanted = (first.plan, first.plan_name, first.workspace_bytes, first.shown)
    del first
    gc.collect()
    allocated = fake_cuda.allocated
    second = forward(library)
    second.choose()
    assert 0 < allocated == fake_cuda.allocated
    assert (second.plan, second.plan_name, second.workspace_bytes, second.shown) == wanted
    assert (len(frontend.numbers), frontend.tried, trials.tried) == (1, [0], [0])


@pytest.mark.parametrize(
    ("like", "unbuildable", "wrong", "plan"),
    [
        ("engine 5", (), (), 5),
        ("engine 5", (5,), (), 0),
        ("engine 5", (0,), (5,), 1),
        ("engine 12", (), (), 0),
        ("", (0,), (), 1),
    ],
)
def test_a_plan_by_its_name(library, frontend, trials, like, unbuildable, wrong, plan):
    """Where it cannot be had, the first that can."""
    frontend.unbuildable, trials.wrong = {*unbuildable}, {*wrong}
    found = forward(library)
    found.choose(None, like)
    assert (found.plan, found.plan_name) == (plan, f"engine {plan}")


OTHERS = {
    "kind": [replace(BASE, kind="data"), replace(BASE, kind="filter")],
    "operands": [
        replace(BASE, operands=tuple(operands(x=(16, 4, 9, 9), y=(16, 16, 7, 7)).items())),
        replace(BASE, operands=tuple(operands(BFLOAT).items())),
        replace(BASE, operands=(*BASE.operands, ("bias", operand((1, 16, 1, 1))))),
        replace(
            BASE,
            operands=(("x", Operand(SIZES["x"], (324, 1, 36, 4), "float32")), *BASE.operands[1:]),
        ),
    ],
    "window": [replace(BASE, window=Window((3, 3), dilation=(2, 2)))],
    "relu": [replace(BASE, relu=True)],
    "exact": [replace(BASE, exact=True)],
    "deterministic": [replace(BASE, deterministic=False)],
}


@pytest.mark.parametrize("field", [each.name for each in fields(ConvSpec)])
def test_whatever_differs_makes_another_graph(library, frontend, field):
    """And what it is asked for differs, or the field would be no part of the key."""
    base = library.conv_plans(BASE)
    for number, other in enumerate(OTHERS[field], 2):
        plans = library.conv_plans(other)
        assert plans is not base
        assert plans._graph.asked != base._graph.asked
        assert len(frontend.numbers) == number
        assert library.conv_plans(BASE) is base


def test_convolutions_that_share_a_graph_keep_their_plans_and_pointers(library, frontend):
    one, two = forward(library), forward(library)
    one.choose(2)
    two.choose(5)
    one.bind({"x": 10, "w": 11, "y": 12}, 100)
    two.bind({"x": 20, "w": 21, "y": 22}, 200)
    early = one.launch(5, 300)
    for launch in (one.run, two.run, one.run, early):
        launch()
    assert (one.plan, one.workspace_bytes, two.plan, two.workspace_bytes) == (2, 300, 5, 600)
    assert len(frontend.numbers) == 1
    found = [([*ends.values()], *rest) for ends, *rest in frontend.launched]
    mine, other = ([10, 11, 12], 100, 2), ([20, 21, 22], 200, 5)
    assert found == [mine, other, mine, ([10, 11, 12], 300, 5)]


def test_the_limit_drops_what_was_not_used_for_longest(library, frontend, trials, monkeypatch):
    monkeypatch.setattr(cudnn_library, "MOST_KEPT", 3)
    windows = [Window((3, 3), dilation=(at, at)) for at in range(1, 5)]

    def make(at):
        before = len(frontend.numbers)
        ConvGraph(library, "forward", operands(), windows[at]).choose()
        return len(frontend.numbers) > before

    assert [make(at) for at in (0, 1, 2)] == [True] * 3
    # The first is used again, so that the second is the oldest.
    assert [make(at) for at in (0, 3)] == [False, True]
    assert [make(at) for at in (0, 2, 3)] == [False] * 3
    assert len(library.graphs) == len(library.verdicts) == len(frontend.made) == 3
    tried = len(trials.tried)
    assert make(1)
    assert len(trials.tried) == tried + 1


def test_a_graph_whose_plans_a_search_has_tried_is_not_kept(library, frontend):
    searched = forward(library)
    for index in range(MOST_BUILT):
        assert searched.build(index)
    assert len(library.graphs) == 1
    assert searched.build(MOST_BUILT)
    assert not library.graphs
    # Who has it still can use it.
    searched.choose(2)
    searched.run()
    del searched
    gc.collect()
    assert not frontend.made
    forward(library).choose(2)
    assert len(frontend.numbers) == 2
    assert len(library.graphs) == 1


def test_plans_that_were_found_wrong_are_not_built_again(library, frontend, trials):
    """So a graph of which many were tried in vain is kept from the second time on."""
    trials.wrong |= set(range(7))
    first = forward(library)
    first.choose()
    assert (first.plan, trials.tried, frontend.tried) == (7, [*range(8)], [*range(8)])
    assert not library.graphs
    for _ in range(2):
        again = forward(library)
        again.choose()
        assert again.plan == 7
    assert (trials.tried, frontend.tried[8:]) == ([*range(8)], [7])
    assert len(frontend.numbers) == 2


def test_what_lacked_memory_is_tried_again(library, frontend, trials):
    frontend.unbuildable, trials.broken = {0}, {1}
    first = forward(library)
    first.choose()
    assert first.plan == 2
    # Not by the same convolution.
    assert not first.build(0)
    assert frontend.tried == [0, 1, 2]
    frontend.unbuildable, trials.broken = set(), set()
    second = forward(library)
    second.choose()
    assert second.plan == 0
    third = forward(library)
    third.choose(1)
    assert third.verified(1, 0)


def test_a_plan_that_takes_too_large_a_workspace_is_none(library, frontend, trials):
    frontend.workspace = WORKSPACE_LIMIT // 2
    graph = forward(library)
    assert [graph.build(index) for index in range(3)] == [True, True, False]
    with pytest.raises(CudnnError, match="plan 2 of the tuning cannot be built"):
        graph.choose(2)


def test_a_geometry_that_is_refused_raises_the_same_error_each_time(library, frontend):
    frontend.refusal = "no  engine\ntakes it"
    told = []
    for _ in range(2):
        with pytest.raises(
            CudnnError, match=r"pygraph\(kind=forward.*3x3.*no engine takes it"
        ) as e:
            forward(library).choose()
        told.append(str(e.value))
    assert told[0] == told[1]
    assert not library.graphs
    frontend.refusal = ""
    forward(library).choose(0)


def test_no_plan_keeps_its_promises(library, frontend, trials):
    trials.wrong |= set(range(frontend.plans))
    for _ in range(2):
        with pytest.raises(CudnnError, match="no plan can be built that keeps its promises"):
            forward(library).choose()
    assert trials.tried == frontend.tried == [*range(frontend.plans)]


def test_no_graph_outlives_its_handle(frontend, fake_cuda, trials):
    library = Cudnn(fake_cuda.Stream())
    one, two = forward(library), forward(library, relu=True)
    one.choose()
    for index in range(MOST_BUILT + 1):
        two.build(index)
    del library
    assert not frontend.freed
    del one
    assert (len(frontend.made), frontend.freed) == (2, [])
    # The last that uses the handle: its own graph is not kept, the other one is.
    del two
    assert not frontend.made
    assert frontend.freed == [(1, 0)]


def test_trainings_of_one_backend_have_one_handle(fake_cuda, monkeypatch):
    made = []
    monkeypatch.setattr(backend_module, "Cublas", lambda *_: None)
    monkeypatch.setattr(backend_module, "cublas_lt", lambda: object())
    monkeypatch.setattr(backend_module, "Cudnn", lambda stream: made.append(stream) or object())
    backend = CudaBackend()
    handles = {backend._stream(0, tf32).cudnn for tf32 in (True, False, True)}
    assert len(handles) == len(made) == 1
    assert backend._stream(1, True).cudnn not in handles


@pytest.mark.parametrize("call", ["create_handle", "set_stream"])
def test_a_cudnn_that_refuses_is_said_to(frontend, fake_cuda, monkeypatch, call):
    """As where another program has filled the GPU's memory."""

    def refuse(**_):
        raise RuntimeError("CUDNN_STATUS_ALLOC_FAILED")

    monkeypatch.setattr(frontend, call, refuse)
    with pytest.raises(BackendUnavailableError, match=r"cannot be used.*ALLOC_FAILED"):
        Cudnn(fake_cuda.Stream())
