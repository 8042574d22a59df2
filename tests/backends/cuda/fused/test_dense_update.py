"""Dense weights updated with their gradient by the update's launch: where, and how chosen."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dnnstack.backends.compiling import ChoiceError
from dnnstack.backends.cuda import timed_plans
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.fused.dense_tilings import DenseGeometry, UpdateTiling
from dnnstack.backends.cuda.libraries.layout import FLOAT
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import LayerSpec
from dnnstack.optimizers.groups import Group
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ....support import composed
from ....support.described_cuda import described
from ....support.goldens import compare
from ....support.specs import network_of
from ....support.timed import Timed
from ..taped import bind, tape

__all__ = ["tape"]
CHOICES = {"layout": "nhwc", "pad": "8", "streams": "1"}
KEY, SECOND = "train/dense_1/filter/gemm", "train/dense_2/filter/gemm"


def geometry(depth=64, dtype=FLOAT):
    return DenseGeometry(500, 800, depth, (500, 800, 800), False, False, 800, dtype, FLOAT)


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
    network = network_of(specs, shape)
    scaling = Preprocessing.standardize([0.5], [0.2])
    graph = composed.train_graph(network, 64, "data", 640, 10, 20, scaling, rule)
    return {"train": rewritten(graph, CudaBackend.rewrites)}


def test_goldens_of_two_updates(tape):
    """Of which the last takes along what may go along."""
    slow = Group(names=("dense_[23].*",), rates="slow")
    graphs = mlp(72, 64, rule=Composition(Sgd(momentum=0.9), (slow,)))

    def every():
        for ending in ("", "tail", "batch", "tail,batch"):
            choices = CHOICES | {"ending": ending, SECOND: "e2-2-2-2"}
            executable = bind(graphs, "tf32", choices)
            yield f"# {ending}"
            yield from described(tape, executable)
            executable.close()

    compare("cuda/two updates", every())


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
        (Timed(6.0, 4.5, 9.0), 3, ["e1", "e0", "1"]),
        (Timed(6.0, 4.5, float("inf")), 3, ["e1", "e0", "1"]),
        (Timed(9.0), 3, ["e0", "1"]),
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
    assert chosen == {"p/gemm": "t0"}
    assert found.get("p/gemm") == wanted
