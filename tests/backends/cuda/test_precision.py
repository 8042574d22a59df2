"""What every precision promises on a GPU: equal bits, exact resume, fused near unfused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.backend import CudaBackend
from dnnstack.backends.cuda.libraries.conv_graph import ConvGraph
from dnnstack.backends.cuda.libraries.conv_plans import WORKSPACE_LIMIT
from dnnstack.backends.cuda.libraries.cudnn_library import Cudnn
from dnnstack.backends.cuda.libraries.layout import Layout
from dnnstack.backends.cuda.libraries.operand import Operand
from dnnstack.backends.cuda.libraries.runtime import cuda_api, cupy_on, device
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.geometry import Window
from dnnstack.layers.build import LayerSpec
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed
from ...support.feeding import feed, losses_of
from ...support.specs import network_of

pytestmark = pytest.mark.cuda

BATCH, COUNT, STEPS = 48, 192, 4


def conv(filters, kernel, padding=0):
    options = {"filters": filters, "kernel_size": kernel, "padding": padding}
    return LayerSpec("conv2d", options=options)


def dense(units):
    return LayerSpec("dense", options={"units": units})


RELU, POOL, FLAT = LayerSpec("relu"), LayerSpec("max_pool2d"), LayerSpec("flatten")
NETS = {
    # Both ends fused, a picture flattened in its own order.
    "lenet": ((1, 28, 28), [conv(20, 5), POOL, conv(50, 5), POOL, FLAT, dense(500), RELU]),
    "padded": ((1, 15, 13), [conv(7, 3, 1), RELU, POOL, FLAT, dense(70), LayerSpec("tanh")]),
    "cifar": (
        (3, 16, 16),
        [conv(64, 3, 1), RELU, conv(64, 3, 1), RELU, POOL, conv(36, 3, 1), RELU, POOL, FLAT],
    ),
    "mlp": ((1, 28, 28), [FLAT, dense(500), RELU]),
}
# How far the loss of a few steps may be from float64's, and fused from unfused.
TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 2e-2}


def make(backend, name, options):
    """An executable with data and fresh parameters, and its graph."""
    shape, layers = NETS[name]
    network = network_of([*layers, dense(10)], shape)
    scaling = Preprocessing.standardize([0.4] * shape[0], [0.3] * shape[0])
    rule = Sgd(momentum=0.9, weight_decay=0.01, weight_decay_on="weights")
    graph = composed.train_graph(network, BATCH, "train", COUNT, COUNT // BATCH, 50, scaling, rule)
    executable = backend.compile({"train": graph}, options)
    feed(executable, network, graph, 0.02, shuffled=True)
    return executable, graph


def run(executable, graph, steps=STEPS):
    """The losses of some steps."""
    return losses_of(executable, graph, steps)


def state(executable, graph):
    """Everything that a checkpoint would hold."""
    updated = [tensor for op in graph.ops for tensor in op.tensors(op.updates)]
    return {tensor: executable.read(tensor) for tensor in dict.fromkeys(updated)}


def assert_equal_bits(first, second):
    for tensor, values in first.items():
        np.testing.assert_array_equal(values, second[tensor], tensor.name)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("name", NETS)
def test_losses_follow_the_reference(cuda, name, fusion, precision):
    wanted = run(*make(ReferenceBackend(2), name, Options("fp64")))
    executable, graph = make(cuda, name, Options(precision, fusion=fusion, tune=False))
    losses = run(executable, graph)
    np.testing.assert_allclose(losses, wanted, rtol=TOLERANCE[precision])
    sums = executable.read(graph["sums"])
    assert sums[2] == BATCH * STEPS
    np.testing.assert_allclose(sums[0], BATCH * np.sum(losses), rtol=1e-5)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", ["lenet", "cifar"])
def test_two_runs_and_a_resume_are_bit_equal(cuda, name, precision):
    first, graph = make(cuda, name, Options(precision, tune_seconds=1.0))
    losses = run(first, graph)
    same = Options(precision, tuning=first.tuning)
    again, graph_again = make(cuda, name, same)
    assert run(again, graph_again) == losses
    assert_equal_bits(state(first, graph), state(again, graph_again))
    begun, graph_begun = make(cuda, name, same)
    run(begun, graph_begun, 2)
    resumed, graph_resumed = make(cuda, name, same)
    for tensor, values in state(begun, graph_begun).items():
        resumed.write(tensor, values)
    assert run(resumed, graph_resumed, STEPS - 2) == losses[2:]
    assert_equal_bits(state(first, graph), state(resumed, graph_resumed))


@pytest.mark.parametrize("precision", TOLERANCE)
def test_trainings_that_share_graphs_of_cudnn_do_not_disturb_each_other(cuda, precision):
    """Step by step in turn: two with the plans of a search, two with those of heuristics."""
    found = Options(precision, tune_seconds=1.0, fusion=False)
    alone = [make(cuda, "cifar", options) for options in (found, replace(found, tune=False))]
    wanted = [run(*training) for training in alone]
    tables = [executable.tuning for executable, _ in alone]
    together = [make(cuda, "cifar", replace(found, tuning=table)) for table in tables * 2]
    for step in range(STEPS):
        for training, losses in zip(together, wanted * 2, strict=True):
            assert run(*training, 1) == losses[step : step + 1]
    for training, before in zip(together, alone * 2, strict=True):
        assert_equal_bits(state(*before), state(*training))


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("streams", ["1", "2", "3"])
def test_streams_and_capture_change_no_bit(cuda, precision, streams):
    plain, graph = make(cuda, "lenet", Options(precision, tune=False))
    wanted = run(plain, graph)
    table = plain.tuning
    choices = {**table.choices, "streams": streams}
    tuning = type(table)(table.backend, table.environment, table.graph, choices)
    for backend in (cuda, CudaBackend(capture=False)):
        executable, other = make(backend, "lenet", Options(precision, tuning=tuning))
        assert run(executable, other) == wanted
        assert_equal_bits(state(plain, graph), state(executable, other))


def forward_graph(exact):
    shapes = {"x": (8, 32, 12, 12), "w": (32, 32, 3, 3), "y": (8, 32, 10, 10)}
    operands = {name: Operand.of(Layout(s, s, True)) for name, s in shapes.items()}
    graph = ConvGraph(Cudnn(device().stream), "forward", operands, Window((3, 3)), exact=exact)
    graph.choose()
    return graph


def test_rounding_to_tf32_is_found_out(cuda):
    """The check that keeps fp32 exact must see what TF32 does."""
    workspace = cuda_api().empty(WORKSPACE_LIMIT, "uint8")
    pointer = int(workspace.data.ptr)
    with cupy_on(device().stream):
        for exact in (False, True):
            graph = forward_graph(exact)
            assert graph._is_exact(partial(graph._try, graph.plan, pointer)) == exact


def test_what_does_not_repeat_is_found_out(cuda, monkeypatch):
    graph = forward_graph(False)
    real, turns = graph._execute, []

    def drifting(pointers, workspace, plan):
        real(pointers, workspace, plan)
        turns.append(plan)
        if len(turns) == 2:
            output = pointers[graph._plans.ids["y"]]
            cuda_api().runtime.memsetAsync(output, 1, 4, device().stream.ptr)

    monkeypatch.setattr(graph, "_execute", drifting)
    # The plan was found right when it was chosen, which is remembered.
    graph._verdicts.clear()
    workspace = cuda_api().empty(WORKSPACE_LIMIT, "uint8")
    assert not graph.verified(graph.plan, int(workspace.data.ptr))
