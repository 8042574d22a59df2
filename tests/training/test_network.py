from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.rewrites import rewritten
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.layers.losses.loss import Loss
from dnnstack.layers.losses.mean_squared_error import MeanSquaredErrorLoss
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ..support import composed
from ..support.frozen import retold
from ..support.mixtures import listed
from ..support.nets_composite import conv

PICTURE, CLASSES = (1, 6, 6), 3
PLAIN = Preprocessing((1 / 255,), (0.0,))


def spec(kind: str, name: str = "", **options: Any) -> LayerSpec:
    return LayerSpec(kind, name, options)


STACK = [
    spec("conv2d", filters=2, kernel_size=3),
    spec("relu"),
    spec("max_pool2d"),
    spec("flatten"),
    spec("dense", units=CLASSES),
    spec("softmax"),
]


def network(specs: list[LayerSpec], loss: Loss | None = None) -> Network:
    return Network(build_layers(specs, PICTURE), loss or CrossEntropyLoss(), PICTURE, CLASSES)


def train_graph(net: Network, batch_size: int = 4, count: int = 8) -> Graph:
    steps = count // batch_size
    return composed.train_graph(net, batch_size, "toy", count, steps, 10, PLAIN, Sgd())


# ---------------------------------------------------------------- building


def test_a_softmax_that_other_layers_follow_is_doubted():
    assert list(network(STACK).doubts()) == []
    inner = spec("sequential", layers=[spec("dense", units=CLASSES), spec("softmax")])
    assert list(network([spec("flatten"), inner]).doubts()) == []
    after = [spec("dense", units=CLASSES), spec("softmax")]
    for name, stack in (
        ("softmax_1", [*STACK, *after]),
        ("sequential_1.softmax_1", [spec("flatten"), inner, *after]),
    ):
        assert list(network(stack).doubts()) == [
            f"layer '{name}' (softmax) is not the last layer: what follows it sees "
            "probabilities, from which it learns slowly; remove it, or move it to the end"
        ]


def test_names_used_twice():
    specs = [spec("relu", "a"), spec("flatten", "a")]
    message = r"layer 2 'a' \(flatten\): another layer has this name; give one of them another"
    with pytest.raises(ConfigError, match=message):
        build_layers(specs, PICTURE)
    with pytest.raises(ConfigError, match="layer 2 'relu_2'"):
        build_layers([spec("relu", "relu_2"), spec("relu")], PICTURE)


def test_wrong_geometry_names_layer_and_fix():
    specs = [spec("conv2d", filters=50, kernel_size=3), spec("relu"), spec("dense", units=3)]
    message = (
        r"layer 3 'dense_1' \(dense\): expects a flat input, got \(50, 4, 4\); "
        "insert 'flatten' before it"
    )
    with pytest.raises(ShapeError, match=message):
        build_layers(specs, PICTURE)


def test_scores_must_fit_the_classes():
    with pytest.raises(ShapeError, match=r"the last layer gives \(8,\), the data has 3 classes"):
        network(STACK[:4])
    with pytest.raises(ShapeError, match=r"gives \(1, 6, 6\), the data has 3 classes"):
        network([])


# ---------------------------------------------------------------- initial values


def test_initial_values_depend_on_seed_and_own_name_alone():
    net = network(STACK)
    first, again, other = (net.initial_values(seed) for seed in (1, 1, 2))
    longer = network([spec("relu"), *STACK]).initial_values(1)
    assert [t.name for t in first] == [
        "conv2d_1.weight",
        "conv2d_1.bias",
        "dense_1.weight",
        "dense_1.bias",
    ]
    for tensor, value in first.items():
        assert value.shape == tensor.shape
        np.testing.assert_array_equal(value, again[tensor])
        np.testing.assert_array_equal(value, longer[tensor])
        drawn = tensor.name.endswith("weight")
        assert np.array_equal(value, other[tensor]) == (not drawn)


def test_two_layers_of_one_shape_start_differently():
    specs = [spec("flatten"), spec("dense", units=36), spec("dense", units=36)]
    net = network([*specs, spec("dense", units=3)])
    values = list(net.initial_values(1).values())
    assert not np.array_equal(values[0], values[2])


# ---------------------------------------------------------------- graphs


def residual(*body: LayerSpec, shortcut: Any = "identity", name: str = "") -> LayerSpec:
    return spec("residual", name, body=[*body], shortcut=shortcut)


def concat(*branches: list[LayerSpec]) -> LayerSpec:
    return spec("concat", branches=[*branches])


RELU, END = spec("relu"), [spec("flatten"), spec("dense", units=CLASSES)]
SOFTMAX = [*END, spec("softmax")]
NETWORKS = {
    "plain": network(STACK),
    "without softmax": network(STACK[:-1]),
    "squared error": network(STACK, MeanSquaredErrorLoss()),
    "dense alone": network([spec("flatten"), spec("dense", "hidden", units=4), *END[1:]]),
    "residual, relu, concat": network([residual(conv(1)), RELU, concat([conv(1)], []), RELU, *END]),
    "residual, gelu": network([residual(conv(1)), spec("gelu"), *END]),
    "padding": network([conv(2), residual(conv(5, stride=2), shortcut="padding"), *END]),
    "projection": network([residual(conv(5, stride=2), shortcut="projection", name="a"), *END]),
    "two convolutions of one dy": network(
        [residual(conv(2, use_bias=False), shortcut=[conv(2, 1)]), *END]
    ),
    "nested": network(
        [
            *(conv(3), residual(conv(3), residual(conv(3), RELU), shortcut=[conv(3, 1)], name="a")),
            *(RELU, spec("sequential", layers=[conv(2), spec("sequential", layers=SOFTMAX)])),
        ]
    ),
    "a softmax inside": network([spec("sequential", layers=SOFTMAX), spec("tanh")]),
}


def test_graphs_are_what_they_were():
    """Those of every section, and of training as a backend rewrites it."""
    lines = []
    for name, net in NETWORKS.items():
        train = train_graph(net)
        fused = rewritten(train, ReferenceBackend(1).rewrites)
        graphs = (train, fused, net.evaluate_graph(2, "toy", 8, 4, PLAIN), net.infer_graph(2))
        lines += [name, *(line for graph in graphs for line in listed(graph))]
    text = re.sub(r"Origin\(layer='(\S*)', phase='(\S*)'\)", r"\1 \2", "\n".join(lines))
    text = re.sub(r"Tensor\(name='(\S*)', shape=(\([^)]*\)), dtype='(\S*)', ", r"\1 \2 \3(", text)
    assert retold(__file__, re.sub(r" float32\(role='\S*', section='\S*'\)", "", text) + "\n") == []


def test_preprocessing():
    pixels = Preprocessing.standardize((0.5, 0.25), (0.25, 0.5))
    np.testing.assert_allclose(np.array(pixels.scale) * 255 + pixels.shift, [2.0, 1.5])
    np.testing.assert_allclose(pixels.shift, [-2.0, -0.5])
