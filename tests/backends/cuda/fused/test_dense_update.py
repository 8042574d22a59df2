"""Dense weights updated with their gradient by the update's launch: where, and how chosen."""

from __future__ import annotations

from types import SimpleNamespace

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
    for depth in (1, 16, 64, 320, 1000):
        g = geometry(depth, dtype)
        found = update_tilings(g, 8, H200)
        assert 1 <= len(found) <= 8
        assert len(set(found)) == len(found)
        assert all(each.sound and each.shared <= MOST_SHARED - (20 << 10) for each in found)
        assert all(UpdateTiling.named(g, [*each.numbers.values()]) == each for each in found)
        assert [*found] == sorted(found, key=lambda each: each.clocks(H200))


@pytest.mark.parametrize(
    "values", [(1, 1, 4), (3, 1, 1, 1), (1, 1, 4, 1), (1, 1, 8, 2), (1, 1, 16, 1), (0, 1, 8, 1)]
)
def test_tilings_that_are_none(values):
    with pytest.raises(ValueError, match=r"tiling .* is unknown"):
        UpdateTiling.named(geometry(depth=64), values)


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
