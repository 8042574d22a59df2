"""The CUDA executable on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.executable import TOGETHER
from dnnstack.backends.cuda.libraries.overlap import available
from dnnstack.backends.tuning import Tuning
from dnnstack.optimizers.adam import Adam
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ...support import composed
from ...support.feeding import feed, losses_of
from ...support.specs import layers_of, network_of

pytestmark = pytest.mark.cuda

COUNT, BATCH, STEPS = 96, 32, 6
CONV_NET = layers_of(
    "[conv2d: {filters: 20, kernel_size: 3}, relu, max_pool2d, "
    "conv2d: {filters: 18, kernel_size: 3, padding: same}, silu, avg_pool2d, flatten, "
    "dense: {units: 30}, tanh, dense: {units: 10}, softmax]"
)


def train(backend, options, steps=STEPS, rule=None, total=50):
    """Train a small network; returns losses, parameters and the executable."""
    shape = (3, 12, 12)
    network = network_of(CONV_NET, shape)
    scaling = Preprocessing.standardize([0.4, 0.5, 0.6], [0.2, 0.3, 0.25])
    rule = rule or Composition(Sgd(momentum=0.9, nesterov=True, weight_decay=0.01), clip_norm=2.0)
    graph = composed.train_graph(
        network, BATCH, "train", COUNT, COUNT // BATCH, total, scaling, rule
    )
    executable = backend.compile({"train": graph}, options)
    feed(executable, network, graph, 0.05, shuffled=True)
    losses = losses_of(executable, graph, steps)
    return losses, [executable.read(p.tensor) for p in network.parameters()], executable


RULES = {
    "momentum": Sgd(momentum=0.9, weight_decay=0.01),
    "plain": Sgd(),
    "clipped": Composition(Sgd(momentum=0.9, nesterov=True), clip_norm=0.5),
    "adam": Adam(),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("streams", ["1", "2"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("overlap", ["", "chains", "joins"])
@pytest.mark.parametrize("ending", ["", "batch", "tail,batch"])
def test_steps_in_one_graph_are_bit_equal_to_single_ones(
    cuda, precision, streams, rule, overlap, ending
):
    """Twice as many as a graph holds, and some more, from a step on that is no multiple; whether
    or not launches overlap, and whatever gathers the next batch."""
    if overlap and not available():
        pytest.skip("overlapping launches need a GPU of compute capability 9.0")
    _, _, first = train(cuda, Options(precision, tune=False), 0, rule)
    choices = {**first.tuning.choices, "streams": streams}
    executables = []
    for kind, end in (("", ending.partition(",")[0].replace("batch", "")), (overlap, ending)):
        chosen = choices | ({"overlap": kind} if kind else {}) | {"ending": end}
        table = Tuning("cuda", first.tuning.environment, first.tuning.graph, chosen)
        executables.append(train(cuda, Options(precision, tuning=table), 0, rule)[2])
    runs = ([1] * (2 * TOGETHER + 6), [1, 2 * TOGETHER + 2, 3])
    found = []
    for executable, steps in zip(executables, runs, strict=True):
        assert not executable.notices
        for count in steps:
            executable.run("train", count, wait=False)
        graph = executable.graphs["train"]
        named = [t for t in graph.tensors() if t.role in ("parameter", "state", "scalar")]
        found.append({t.name: executable.read(t) for t in [*named, graph["loss"], graph["x"]]})
    assert found[0].keys() == found[1].keys()
    for name, values in found[0].items():
        np.testing.assert_array_equal(values, found[1][name], err_msg=name)


def test_a_timing_ends_where_the_tables_of_a_short_training_do(cuda, monkeypatch):
    monkeypatch.setattr("dnnstack.backends.cuda.executable.SLOW", float("inf"))
    _, _, executable = train(cuda, Options("fp32", tune=False), 0, total=5)
    assert executable.step_seconds("train", 2) > 0
    assert executable.read(executable.graphs["train"]["step"])[0] == 5


def test_capturing_advances_nothing(cuda):
    _, _, executable = train(cuda, Options(tune=False), steps=1)
    step = executable.graphs["train"]["step"]
    assert executable.read(step)[0] == 1
    assert executable.read(executable.graphs["train"]["sums"])[2] == BATCH


def test_another_data_set_is_taken(cuda):
    """A longer data set moves in memory: the captured graph must not read the old one."""
    _, _, executable = train(cuda, Options(tune=False), steps=1)
    graph = executable.graphs["train"]
    images = np.full((COUNT + 5, 3, 12, 12), 255, np.uint8)
    executable.write(graph["images"], images)
    executable.run("train")
    expected = (1 - np.array([0.4, 0.5, 0.6])) / np.array([0.2, 0.3, 0.25])
    got = executable.read(graph["x"])[0, :, 0, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_plain_sgd_is_saxpy(cuda):
    _, _, executable = train(cuda, Options(tune=False, fusion=False), rule=Sgd())
    functions = {call.function for call in executable.calls("train")}
    assert {"cublasSaxpy", "cublasSgemm", "cublasSgemv"} <= functions


def test_measuring_changes_nothing(cuda):
    _, values, executable = train(cuda, Options(tune=False))
    executable.measure("train", 2)
    graph = executable.graphs["train"]
    names = {t.name: t for t in graph.tensors()}
    np.testing.assert_array_equal(executable.read(names["conv2d_1.weight"]), values[0])
    assert executable.read(graph["step"])[0] == STEPS
