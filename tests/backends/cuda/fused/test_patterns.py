"""Fused ends of a network mean what their parts mean, and form only where nobody else looks."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.cuda.fused import REWRITES
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import Fused
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ....support import composed
from ....support.specs import spec

BATCH, COUNT, CLASSES = 3, 6, 4


def conv(**options):
    return spec("conv2d", **{"filters": 3, "kernel_size": 3, **options})


POOL, FLAT, RELU = spec("max_pool2d"), spec("flatten"), spec("relu")
TAIL = (FLAT, spec("dense", units=6), RELU, spec("dense", units=CLASSES))
FIRST = {"first_conv_pool", "first_conv_pool_backward"}
LAST = {"dense_tail", "dense_tail_gradients"}
CASES = {
    "lenet": ((1, 12, 12), (conv(), POOL, conv(filters=5), POOL, *TAIL), FIRST | LAST),
    "relu before the pool": ((1, 9, 9), (conv(padding=1), RELU, POOL, *TAIL), FIRST | LAST),
    "no biases": (
        (1, 8, 10),
        (
            *(conv(use_bias=False), POOL, FLAT, spec("dense", units=6, use_bias=False)),
            *(spec("tanh"), spec("dense", units=CLASSES, use_bias=False)),
        ),
        FIRST | LAST,
    ),
    "a final softmax": ((1, 8, 8), (*TAIL, spec("softmax")), LAST),
    "colour": ((2, 8, 8), (conv(), POOL, *TAIL), LAST),
    "average": ((1, 8, 8), (conv(), spec("avg_pool2d"), *TAIL), LAST),
    "windows that overlap": (
        (1, 8, 8),
        (conv(), spec("max_pool2d", pool_size=2, stride=1), *TAIL),
        LAST,
    ),
    "steps of two": ((1, 9, 9), (conv(stride=2), POOL, *TAIL), LAST),
    "an activation that is no part": (
        (1, 8, 8),
        (conv(), POOL, FLAT, spec("dense", units=6), spec("gelu"), spec("dense", units=CLASSES)),
        FIRST,
    ),
    "one dense layer": ((1, 8, 8), (conv(), POOL, FLAT, spec("dense", units=CLASSES)), FIRST),
    "sigmoid behind the convolution": ((1, 8, 8), (conv(), spec("sigmoid"), POOL, *TAIL), LAST),
}


class Fusing(ReferenceBackend):
    """The reference, which computes a fused operation part by part."""

    rewrites = REWRITES


def network(shape, specs):
    loss = CrossEntropyLoss(label_smoothing=0.1)
    return Network(build_layers(list(specs), shape), loss, shape, CLASSES)


def train_graph(net):
    pixels = Preprocessing((1 / 64,) * net.input_shape[0], (-2.0,) * net.input_shape[0])
    rule = Sgd(momentum=0.9, weight_decay=0.01)
    return composed.train_graph(net, BATCH, "toy", COUNT, COUNT // BATCH, 9, pixels, rule)


def kinds(graph: Graph) -> set[str]:
    return {op.kind for op in rewritten(graph, REWRITES).ops if isinstance(op, Fused)}


def trained(net, graph, fusion):
    """What three steps leave behind."""
    executable = Fusing(1).compile({"train": graph}, Options("fp64", fusion=fusion))
    draw = np.random.default_rng(0)
    pixels = draw.choice(np.array([0, 0, 0, 90, 255], np.uint8), (COUNT, *net.input_shape))
    executable.write(graph["images"], pixels)
    executable.write(graph["labels"], draw.integers(0, CLASSES, COUNT).astype(np.int32))
    executable.write(graph["order"], np.array([0, 1, 2, 3, -1, 5], np.int32))
    executable.write(graph["rates"], np.full(9, 0.05, np.float32))
    for tensor, values in net.initial_values(1).items():
        executable.write(tensor, values)
    executable.run("train", 3)
    updated = [tensor for op in graph.ops for tensor in op.tensors(op.updates)]
    seen = (*updated, graph["scores"], graph["loss"])
    return {tensor.name: executable.read(tensor) for tensor in seen}


@pytest.mark.parametrize("name", CASES)
def test_fused_equals_unfused(name):
    shape, specs, expected = CASES[name]
    net = network(shape, specs)
    graph = train_graph(net)
    assert kinds(graph) == expected
    fused, plain = trained(net, graph, True), trained(net, graph, False)
    for tensor, values in plain.items():
        np.testing.assert_allclose(fused[tensor], values, rtol=1e-12, atol=1e-14, err_msg=tensor)


def test_what_somebody_looks_at_is_kept():
    shape, specs, _ = CASES["lenet"]
    graph = train_graph(network(shape, specs))
    every = {tensor.name: tensor for tensor in graph.tensors()}
    graph.results["inside"] = every["conv2d_1.y"]
    assert kinds(graph) == LAST
    del graph.results["inside"]
    graph.results["hidden"] = every["relu_1.y"]
    assert kinds(graph) == FIRST


def test_evaluation_has_no_backward_to_fuse():
    shape, specs, _ = CASES["lenet"]
    net = network(shape, specs)
    pixels = Preprocessing((1 / 64,), (-2.0,))
    graph = net.evaluate_graph(BATCH, "toy", COUNT, COUNT // BATCH, pixels)
    assert kinds(graph) == {"first_conv_pool"}


def test_parts_are_counted_once():
    shape, specs, _ = CASES["lenet"]
    graph = train_graph(network(shape, specs))
    fused = rewritten(graph, REWRITES)
    plain = sum(op.flops() for op in graph.ops)
    assert abs(sum(op.flops() for op in fused.ops) - plain) < 0.05 * plain
    layers = {origin.layer for op in fused.ops for origin in op.origin}
    assert layers == {origin.layer for op in graph.ops for origin in op.origin}


@pytest.mark.parametrize(("width", "fuses"), [(250, True), (256, False)])
def test_pictures_too_wide_for_shared_memory_stay_apart(width, fuses):
    """48 KiB a block: two pictures of 16 x 256 with their padding, and 64 filters of 5 x 5, are
    more."""
    first = spec("conv2d", filters=64, kernel_size=5, padding="same")
    net = network((1, 16, width), (first, POOL, *TAIL))
    assert ("first_conv_pool" in kinds(train_graph(net))) == fuses
