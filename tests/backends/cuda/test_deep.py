"""A deep network with every kind of connection on a GPU, against the reference."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.executable import TOGETHER
from dnnstack.backends.cuda.libraries.overlap import available
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.backends.tuning import Tuning
from dnnstack.layers.build import LayerSpec
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ...support import composed
from ...support.feeding import feed, losses_of
from ...support.specs import network_of, spec

COUNT, BATCH, STEPS = 48, 24, 3
SHAPE = (3, 12, 12)


def conv(filters, stride=1, **options):
    fixed = {"filters": filters, "kernel_size": 3, "stride": stride, "padding": "same"}
    return LayerSpec("conv2d", options={"use_bias": False, **fixed, **options})


def normed(filters, stride=1):
    return [conv(filters, stride), spec("batch_norm")]


# Channels that fill no tile: padding must stay zero all the way.
NET = (
    *(*normed(20), spec("relu")),
    spec("residual", body=[*normed(20), spec("silu"), *normed(20)]),
    *(spec("relu"), spec("max_pool2d"), spec("lrn", alpha=0.1)),
    spec("residual", body=normed(33, stride=2), shortcut="projection"),
    *(spec("sigmoid"), spec("dropout", rate=0.2)),
    spec("residual", body=[conv(41, use_bias=True)], shortcut="padding"),
    spec("concat", branches=[[conv(5), spec("softplus")], normed(7), []]),
    *(spec("lcn", size=3, alpha=0.1), spec("batch_norm", scale=False, center=False)),
    *(conv(21, algorithm="im2col"), spec("flatten"), spec("dropout", rate=0.5)),
    *(spec("dense", units=40), spec("batch_norm"), spec("relu"), spec("dropout", rate=0.3)),
    *(spec("dense", units=10), spec("scale", factor=0.5), spec("softmax")),
)


def train(backend, options):
    """Losses of a few steps and of an evaluation then, what the network holds afterwards, and the
    executable."""
    network = network_of(NET, SHAPE)
    scaling = Preprocessing.standardize([0.4, 0.5, 0.6], [0.2, 0.3, 0.25])
    rule = Sgd(momentum=0.9, weight_decay=0.01)
    graph = composed.train_graph(network, BATCH, "train", COUNT, COUNT // BATCH, 50, scaling, rule)
    held_back = network.evaluate_graph(BATCH, "train", COUNT, COUNT // BATCH, scaling)
    executable = backend.compile({"train": graph, "evaluate": held_back}, options)
    executable.write(held_back["order"], np.arange(COUNT, dtype=np.int32))
    feed(executable, network, graph, 0.02, shuffled=True)
    losses = losses_of(executable, graph, STEPS)
    executable.run("evaluate", COUNT // BATCH)
    losses.append(float(executable.read(held_back["sums"])[0]) / COUNT)
    held = {t.name: executable.read(t) for t in network.initial_values(1)}
    return losses, held, executable


@pytest.fixture(scope="module")
def wanted():
    losses, held, _ = train(ReferenceBackend(2), Options("fp64"))
    return losses, held


CHOICES = (
    {"layout": "nhwc", "pad": "4", "streams": "2"},
    {"layout": "nhwc", "pad": "32", "streams": "1"},
    {"layout": "nhwc", "pad": "1", "streams": "1"},
    {"layout": "nchw", "streams": "1"},
)


@pytest.mark.cuda
@pytest.mark.parametrize("fusion", [True, False])
@pytest.mark.parametrize("choices", CHOICES)
def test_training_follows_the_reference(cuda, wanted, fusion, choices):
    plain = Options("fp32", fusion=fusion, tune=False)
    _, _, first = train(cuda, plain)
    table = Tuning("cuda", first.tuning.environment, first.tuning.graph, choices)
    losses, held, executable = train(cuda, Options("fp32", fusion=fusion, tuning=table))
    assert not executable.notices
    np.testing.assert_allclose(losses, wanted[0], rtol=1e-5)
    for name, want in wanted[1].items():
        size = max(1.0, float(np.abs(want).max()))
        np.testing.assert_allclose(held[name], want, rtol=0, atol=2e-5 * size, err_msg=name)


@pytest.mark.cuda
@pytest.mark.parametrize("streams", ["1", "2"])
@pytest.mark.parametrize("overlap", ["chains", "joins"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_launches_that_overlap_give_the_same_bits(cuda, precision, overlap, streams):
    """Many kernels, each of which reads what the one in front has just written, step after step."""
    if not available():
        pytest.skip("overlapping launches need a GPU of compute capability 9.0")
    _, _, first = train(cuda, Options(precision, tune=False))
    choices = {**first.tuning.choices, "streams": streams}
    found = []
    for kind in ({}, {"overlap": overlap}):
        table = Tuning("cuda", first.tuning.environment, first.tuning.graph, choices | kind)
        losses, held, executable = train(cuda, Options(precision, tuning=table))
        assert not executable.notices
        executable.run("train", 3 * TOGETHER)
        found.append((losses, {t.name: executable.read(t) for t in tensors_of(executable)}, held))
    assert found[0][0] == found[1][0]
    for before, after in zip(found[0][1:], found[1][1:], strict=True):
        for name, values in before.items():
            np.testing.assert_array_equal(after[name], values, err_msg=name)


def tensors_of(executable):
    """Parameters, states and the loss."""
    graph = executable.graphs["train"]
    return [*(t for t in graph.tensors() if t.role in ("parameter", "state")), graph["loss"]]
