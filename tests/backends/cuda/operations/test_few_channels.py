"""Pictures of fewer channels than padding begins at, which batch norm stores in fours."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.binding.layouts import Geometry
from dnnstack.backends.cuda.libraries.layout import Layout
from dnnstack.backends.cuda.operations.pool import indexed
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import Pool2d
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.feeding import feed, losses_of
from ....support.specs import network_of, spec

COUNT, BATCH, SHAPE = 16, 8, (3, 12, 12)


def train_graph(filters, stride):
    """A network whose max-pool gets its pictures, and gives its gradient, in fours."""
    specs = (
        *(spec("conv2d", filters=filters, kernel_size=3), spec("batch_norm"), spec("relu")),
        *(spec("max_pool2d", stride=stride), spec("conv2d", filters=5, kernel_size=3)),
        *(spec("flatten"), spec("dense", units=10), spec("softmax")),
    )
    network = network_of(specs, SHAPE)
    scaling = Preprocessing.standardize([0.5] * 3, [0.25] * 3)
    rule = Sgd(momentum=0.9)
    return network, composed.train_graph(network, BATCH, "train", COUNT, 2, 50, scaling, rule)


def losses(backend, options, filters, stride):
    network, graph = train_graph(filters, stride)
    executable = backend.compile({"train": graph}, options)
    feed(executable, network, graph, 0.02)
    found = losses_of(executable, graph, 3)
    executable.close()
    return found


@pytest.mark.parametrize(("batch", "expected"), [(1 << 19, True), (1 << 20, False)])
def test_pictures_of_more_fours_than_an_index_counts_are_pooled_otherwise(batch, expected):
    """81 pixels of 16 fours each leave a picture of 64."""
    shapes = {"x": (batch, 33, 8, 8), "y": (batch, 33, 9, 9)}
    ends = {name: Tensor(name, size, "float32", "activation") for name, size in shapes.items()}
    op = Pool2d(**ends, window=Window((2, 2), (1, 1), (1, 1, 1, 1)), kind="max")
    binder = SimpleNamespace(
        arithmetic=SimpleNamespace(fusion=True),
        geometry=Geometry({"layout": "nhwc", "pad": "64"}, "bfloat16"),
    )
    layout = Layout(op.x.shape, (batch, 64, 8, 8), True)
    assert indexed(binder, op, layout) is expected


@pytest.mark.cuda
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("filters", [1, 3])
def test_training_follows_the_reference(cuda, filters, stride):
    wanted = losses(ReferenceBackend(1), Options("fp64"), filters, stride)
    for precision, tolerance in (("fp32", 1e-5), ("bf16", 0.05)):
        got = losses(cuda, Options(precision, tune=False), filters, stride)
        np.testing.assert_allclose(got, wanted, rtol=tolerance)
