"""Layers are complete when they are built: shapes, parameters, and errors that say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.graph import Graph, Shape
from dnnstack.graph.ops import Pool2dBackward
from dnnstack.layers.build import LAYERS
from dnnstack.layers.losses import LOSSES

PICTURE = (3, 8, 6)

BUILT: list[tuple[str, Shape, dict[str, Any], Shape, dict[str, Shape]]] = [
    ("dense", (7,), {"units": 4}, (4,), {"weight": (4, 7), "bias": (4,)}),
    ("dense", (7,), {"units": 4, "use_bias": False}, (4,), {"weight": (4, 7)}),
    (
        "conv2d",
        PICTURE,
        {"filters": 5, "kernel_size": (3, 2)},
        (5, 6, 5),
        {"weight": (5, 3, 3, 2), "bias": (5,)},
    ),
    (
        "conv2d",
        PICTURE,
        {"filters": 6, "kernel_size": 3, "groups": 3, "padding": "same", "use_bias": False},
        (6, 8, 6),
        {"weight": (6, 1, 3, 3)},
    ),
    (
        "conv2d",
        PICTURE,
        {"filters": 1, "kernel_size": 2, "stride": (3, 1), "dilation": (1, 4), "padding": (1, 0)},
        (1, 3, 2),
        {"weight": (1, 3, 2, 2), "bias": (1,)},
    ),
    ("max_pool2d", PICTURE, {}, (3, 4, 3), {}),
    ("max_pool2d", PICTURE, {"pool_size": 3, "stride": 2}, (3, 3, 2), {}),
    ("max_pool2d", PICTURE, {"pool_size": 3, "stride": 2, "ceil_mode": True}, (3, 4, 3), {}),
    ("avg_pool2d", PICTURE, {"pool_size": (2, 3), "padding": (1, 1)}, (3, 5, 2), {}),
    ("avg_pool2d", PICTURE, {"pool_size": 3, "padding": "same"}, (3, 3, 2), {}),
    ("global_avg_pool2d", PICTURE, {}, (3,), {}),
    ("flatten", PICTURE, {}, (144,), {}),
    ("scale", PICTURE, {"factor": 0.5}, PICTURE, {}),
    ("softmax", (9,), {}, (9,), {}),
    ("relu", PICTURE, {}, PICTURE, {}),
]


@pytest.mark.parametrize(("kind", "shape", "options", "output", "parameters"), BUILT)
def test_shapes(kind, shape, options, output, parameters):
    layer = LAYERS[kind]("name", shape, **options)
    assert layer.output_shape == output
    found = {p.tensor.name: p.tensor.shape for p in layer.parameters()}
    assert found == {f"name.{key}": value for key, value in parameters.items()}
    graph = Graph("train", 5)
    y = layer.forward(graph, graph.tensor("x", (5, *shape), role="input"))
    assert y.shape == (5, *output)
    dx = layer.backward(graph, graph.tensor("dy", y.shape, role="input"))
    assert dx.shape == (5, *shape)


WRONG: list[tuple[str, Shape, dict[str, Any], str]] = [
    ("dense", PICTURE, {"units": 4}, r"expects a flat input, got \(3, 8, 6\); insert 'flatten'"),
    ("softmax", PICTURE, {}, r"expects a flat input, got \(3, 8, 6\); insert 'flatten'"),
    ("conv2d", (7,), {"filters": 4, "kernel_size": 3}, r"got \(7,\); put it before 'flatten'"),
    (
        "conv2d",
        PICTURE,
        {"filters": 4, "kernel_size": 3, "groups": 2},
        "2 does not divide 3 channels and 4 filters",
    ),
    (
        "conv2d",
        PICTURE,
        {"filters": 4, "kernel_size": 7},
        "a window of 7x7 does not fit the picture of 8x6; use a smaller kernel",
    ),
    ("max_pool2d", (7,), {}, r"expects a picture .* got \(7,\)"),
    ("max_pool2d", PICTURE, {"pool_size": 9}, "a window of 9x9 does not fit"),
    (
        "avg_pool2d",
        PICTURE,
        {"pool_size": 2, "padding": 2},
        r"padding \(2, 2\) is more than half of the pool size \(2, 2\): .* use \(1, 1\) at most",
    ),
    ("global_avg_pool2d", (7,), {}, r"expects a picture .* got \(7,\)"),
]


@pytest.mark.parametrize(("kind", "shape", "options", "message"), WRONG)
def test_geometry_that_cannot_work(kind, shape, options, message):
    with pytest.raises(ShapeError, match=message):
        LAYERS[kind]("name", shape, **options)


def test_fans_of_a_convolution():
    """8 to 12 channels in 2 groups, 3 x 5: an output sees 4 channels, an input 6 filters."""
    layer = LAYERS["conv2d"]("c", (8, 9, 9), filters=12, kernel_size=(3, 5), groups=2)
    assert {(p.fan_in, p.fan_out) for p in layer.parameters()} == {(60, 90)}
    dense = LAYERS["dense"]("d", (7,), units=4)
    assert {(p.fan_in, p.fan_out) for p in dense.parameters()} == {(7, 4)}


def test_average_pooling_keeps_nothing_for_backward():
    layer = LAYERS["avg_pool2d"]("a", PICTURE)
    graph = Graph("train", 2)
    y = layer.forward(graph, graph.tensor("x", (2, *PICTURE), role="input"))
    layer.backward(graph, graph.tensor("dy", y.shape, role="input"))
    back = graph.ops[-1]
    assert isinstance(back, Pool2dBackward)
    assert back.x is None
    assert back.y is None


@pytest.mark.parametrize("kind", LOSSES)
def test_the_network_must_end_with_one_score_a_class(kind):
    LOSSES[kind]().check((10,), 10)
    with pytest.raises(ShapeError, match=r"gives \(50, 4\), .* 10 classes; end .*units: 10"):
        LOSSES[kind]().check((50, 4), 10)
