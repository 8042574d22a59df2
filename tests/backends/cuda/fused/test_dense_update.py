"""Dense weights updated with their gradient by the update's launch: where, and how chosen."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.compiling import ChoiceError
from dnnstack.backends.cuda import timed_plans
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.binding.at_once import gap
from dnnstack.backends.cuda.fused.dense_tilings import DenseGeometry
from dnnstack.backends.cuda.fused.update_tilings import MOST_SHARED, UpdateTiling, update_tilings
from dnnstack.backends.cuda.libraries import kernels
from dnnstack.backends.cuda.libraries.layout import BFLOAT, FLOAT
from dnnstack.backends.cuda.libraries.runtime import H200
from dnnstack.backends.cuda.operations import sgd
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.groups import Group
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ....support import composed
from .test_tensor_dense import Timed

CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
KEY, SECOND = "train/dense_1/filter/gemm", "train/dense_2/filter/gemm"


def geometry(depth=64, dtype=FLOAT):
    return DenseGeometry(500, 800, depth, (500, 800, 800), False, False, 800, dtype, FLOAT)


@pytest.mark.parametrize("dtype", [FLOAT, BFLOAT])
def test_tilings_fit_and_differ(dtype):
    for depth in (1, 16, 64, 1000):
        g = geometry(depth, dtype)
        found = update_tilings(g, 8, H200)
        assert 1 <= len(found) <= 8
        assert len(set(found)) == len(found)
        assert all(each.sound and each.shared <= MOST_SHARED for each in found)
        assert all(UpdateTiling.named(g, [*each.numbers.values()]) == each for each in found)
        assert [*found] == sorted(found, key=lambda each: each.clocks(H200))


@pytest.mark.parametrize(
    "values", [(1, 1, 4), (3, 1, 1, 1), (1, 1, 4, 1), (1, 1, 8, 2), (1, 1, 16, 1), (0, 1, 8, 1)]
)
def test_tilings_that_are_none(values):
    with pytest.raises(ValueError, match=r"tiling .* is unknown"):
        UpdateTiling.named(geometry(depth=64), values)


def offered(executable):
    return {key: make() for b in executable.binders() for key, make in b.at_once.items()}


def test_the_rest_is_left_to_the_update(bound, sections, monkeypatch):
    """Which has no blocks for what is updated already."""
    launched = []
    executable, _ = bound(sections("lenet"), "tf32", CHOICES)
    (key, found), *others = offered(executable).items()
    assert (key, others) == (KEY, [])
    offer = f"e{found.choice(0)}"
    executable.close()
    tables = {}
    for choice in ("", offer):
        kept = sgd._table

        def table(b, op, start, stop, others, kept=kept, choice=choice):
            tables[choice] = kept(b, op, start, stop, others)
            return tables[choice]

        monkeypatch.setattr(sgd, "_table", table)
        executable, _ = bound(
            sections("lenet"), "tf32", CHOICES | ({KEY: choice} if choice else {})
        )
        monkeypatch.setattr(sgd, "_table", kept)
        binder = executable.binders()[0]
        update = binder.graph.ops[-2]
        which = [p.name for p in update.parameters].index("dense_1.weight")
        _, first, last = binder.store.spans[update.parameters[which]]
        start = min(binder.store.spans[p][1] for p in update.parameters)
        launched.append(slice((first - start) // 32, (last - start) // 32))
        executable.close()
    whole, rest = tables.values()
    own = launched[0]
    assert (whole[own, 0] == 1).all()
    assert not rest[own].any()
    rest[own] = whole[own]
    np.testing.assert_array_equal(rest, whole)


def mlp(*units, rule=Sgd(momentum=0.9)):  # noqa: B008
    """A step of a network whose first dense layer reads the batch itself."""
    specs = [LayerSpec("flatten")]
    for count in units or (72,):
        specs += [LayerSpec("dense", options={"units": count}), LayerSpec("relu")]
    specs.append(LayerSpec("dense", options={"units": 10}))
    shape = (1, 28, 28)
    network = Network(build_layers(specs, shape), CrossEntropyLoss(), shape, 10)
    scaling = Preprocessing.standardize([0.5], [0.2])
    graph = composed.train_graph(network, 64, "data", 640, 10, 20, scaling, rule)
    return {"train": rewritten(graph, CudaBackend.rewrites)}


@pytest.mark.parametrize("ending", ["", "batch", "tail,batch"])
@pytest.mark.parametrize("net", ["lenet", "mlp"])
def test_the_launch_of_the_update_computes_them(bound, sections, net, ending):
    graphs = mlp() if net == "mlp" else {"train": sections("lenet")["train"]}
    choices = CHOICES | {"ending": ending}
    executable, _ = bound(graphs, "tf32", choices)
    plain = len(executable.calls("train"))
    executable.close()
    executable, _ = bound(graphs, "tf32", choices | {KEY: "e2-2-2-2"})
    (binder,) = executable.binders()
    calls = executable.calls("train")
    assert len(calls) == plain - 1
    assert calls[-1].function == "step_end"
    assert "MatMul" in calls[-1].arguments["with"]
    assert calls[-1].arguments["DOWN"] == "2"
    # Nothing takes the place of what the update still reads, unless it waits until that is done.
    early, steps = binder._early, binder.repeated(4)
    gathers = 0 if early is None else steps.count(early[1])
    if ending:
        assert binder._joined is not None
    else:
        assert gathers == (0 if net == "mlp" else 3)
    executable.close()


def test_the_next_batch_waits_for_what_reads_the_present_one(bound, sections, monkeypatch):
    given = {}
    launch = kernels.Kernel.launch

    def noted(kernel, stream, grid, block, arguments, shared=0):
        given.setdefault(kernel._name, []).append((grid, arguments, shared))
        return launch(kernel, stream, grid, block, arguments, shared)

    monkeypatch.setattr(kernels.Kernel, "launch", noted)
    for graphs, blocks, waits in (
        (mlp(), 2 * 13, True),
        ({"train": sections("lenet")["train"]}, 8 * 13, False),
    ):
        given.clear()
        choices = CHOICES | {"ending": "tail,batch", KEY: "e2-2-2-2"}
        executable, _ = bound(graphs, "tf32", choices)
        without, along = given["step_end"]
        assert along[0][0] - without[0][0] == along[1][-1] > 0
        assert {int(each[1][-4]) for each in (without, along)} == {blocks}
        assert {int(each[1][-2]) for each in (without, along)} == {blocks if waits else 0}
        assert all((np.ndim(each[1][-3]) > 0) == waits for each in (without, along))
        shared = UpdateTiling.named(geometry(dtype=FLOAT), [2, 2, 2, 2]).shared
        assert {each[2] for each in (without, along)} == {shared}
        # The rest of the update has no blocks for whole 1024s of the weights.
        binder = executable.binders()[0]
        parameters = binder.graph.ops[-2].parameters
        start = min(binder.store.spans[p][1] for p in parameters)
        weight = next(p for p in parameters if p.name == "dense_1.weight")
        _, first, last = binder.store.spans[weight]
        place, gaps = (1024 * int(each) for each in without[1][5:7])
        assert 0 <= place - (first - start) < 1024
        assert 0 <= last - start - place - gaps < 1024
        executable.close()


def test_places_count_from_the_first_parameter_of_the_update(bound, monkeypatch):
    """Here of a second update, in front of which the parameters of another one lie."""
    given = []
    launch = kernels.Kernel.launch

    def noted(kernel, stream, grid, block, arguments, shared=0):
        if kernel._name == "step_end":
            given.append((grid[0], arguments))
        return launch(kernel, stream, grid, block, arguments, shared)

    monkeypatch.setattr(kernels.Kernel, "launch", noted)
    rule = Composition(Sgd(momentum=0.9), (Group(names=("dense_[23].*",), rates="slow"),))
    executable, _ = bound(mlp(72, 64, rule=rule), "tf32", CHOICES | {SECOND: "e2-2-2-2"})
    binder = executable.binders()[0]
    parameters = binder.graph.ops[-2].parameters
    weight, start = parameters[0], min(binder.store.spans[p][1] for p in parameters)
    _, first, last = binder.store.spans[weight]
    assert (weight.name, start > 0) == ("dense_2.weight", True)
    ((blocks, arguments),) = given
    fours, place, gaps = map(int, arguments[4:7])
    assert 0 <= 1024 * place - (first - start) < 1024
    assert 0 <= last - start - 1024 * (place + gaps) < 1024
    assert gaps > 0
    assert int(arguments[-6]) == first - start
    # Blocks that add up slices, those of the product, and the rest.
    assert blocks == int(arguments[10]) + int(arguments[-4]) + -(-fours // 256) - gaps
    executable.close()


@pytest.mark.parametrize("ending", ["tail", "batch", "tail,batch"])
def test_only_the_last_update_takes_along(bound, ending):
    """Of two, with rates of their own, the one that the gradients of the end belong to."""
    rule = Composition(Sgd(momentum=0.9), (Group(names=("dense_[23].*",), rates="slow"),))
    choices = CHOICES | {"ending": ending, SECOND: "e2-2-2-2"}
    executable, _ = bound(mlp(72, 64, rule=rule), "tf32", choices)
    assert [call.function for call in executable.calls("train")][-2:] == ["sgd_update", "step_end"]
    executable.close()


def test_a_gap_is_whole_blocks():
    assert gap(100, 1900, 1024) == (0, 0)
    assert gap(100, 2000, 1024) == (0, 0)
    assert gap(100, 2048, 1024) == gap(1024, 2048, 1024) == gap(1, 3071, 1024) == (1, 1)
    assert gap(4000, 9300, 1024) == (4, 5)


def test_it_serves_where_an_update_by_sgd_alone_follows(bound, sections):
    network = sections.network("lenet")
    scaling = Preprocessing.standardize([0.5], [0.2])
    for rule, serves in (
        (Sgd(), True),
        (Sgd(momentum=0.9, nesterov=True), True),
        (Composition(Sgd(momentum=0.9), clip_norm=1.0), False),
    ):
        graph = composed.train_graph(network, 64, "data", 640, 10, 20, scaling, rule)
        executable, _ = bound({"train": rewritten(graph, CudaBackend.rewrites)}, "tf32", CHOICES)
        assert (KEY in offered(executable)) == serves
        executable.close()
    for precision, fusion in (("fp32", True), ("tf32", False)):
        executable, _ = bound(sections("lenet", fusion=fusion), precision, CHOICES, fusion=fusion)
        assert not offered(executable)
        executable.close()


@pytest.mark.parametrize(
    "choice", ["e", "e1-2", "ex", "e1-1-3-1", "e9-9-1-1", "e0-1-1-1", "e1-1-4-1"]
)
def test_a_choice_that_cannot_be_had_is_an_error(bound, sections, choice):
    with pytest.raises(ValueError, match=r"tuning's tiling .* is unknown|invalid literal"):
        bound(sections("lenet"), "tf32", CHOICES | {KEY: choice})


@pytest.mark.parametrize("choice", ["u2-2-2-2", "x", "-1"])
def test_a_choice_that_there_is_no_more_is_named(bound, sections, choice):
    with pytest.raises(ChoiceError, match=f"^'{choice}' for '{KEY}'$"):
        bound(sections("lenet"), "tf32", CHOICES | {KEY: choice})


def test_a_choice_where_it_does_not_serve_is_an_error(bound, sections):
    with pytest.raises(ValueError, match="the tuning's kernel does not take it"):
        bound(sections("lenet"), "fp32", CHOICES | {KEY: "e2-2-2-2"})
    forward = "train/dense_1/forward/gemm"
    with pytest.raises(ValueError, match="the tuning's kernel does not take it"):
        bound(sections("lenet"), "tf32", CHOICES | {forward: "e2-2-2-2"})
    with pytest.raises(ValueError, match="the update takes one product at most"):
        bound(mlp(72, 64), "tf32", CHOICES | {KEY: "e2-2-2-2", SECOND: "e2-2-2-2"})


@pytest.mark.parametrize(
    ("ours", "launches", "wanted"),
    [
        (Timed(6.0, 4.5, 9.0), 3, ["e1-1-1", "e1-1-0", "1"]),
        (Timed(6.0, 4.5, float("inf")), 3, ["e1-1-1", "e1-1-0", "1"]),
        (Timed(9.0), 3, ["e1-1-0", "1"]),
        (Timed(6.0, 4.0, right=False), 3, ["1"]),
        (Timed(6.0), timed_plans.FEW_LAUNCHES + 1, None),
    ],
)
def test_a_search_tries_them_in_the_whole_step_first(searched, ours, launches, wanted):
    """However long they take alone, for they do more."""
    section = {
        "products": {"p": Timed(5.0, 4.0)},
        # What is faster alone is taken, and the library's algorithm is a rival.
        "variants": {"p/gemm": [("t", lambda: Timed(3.5))]},
        "at_once": {"p/gemm": lambda: ours},
        "steps": [SimpleNamespace(call=True)] * launches,
    }
    found = {}
    chosen = searched(section, rivals=found)
    assert chosen == {"p/gemm": "t1-1-0"}
    assert found.get("p/gemm") == wanted
