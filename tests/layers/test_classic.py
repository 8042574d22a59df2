"""The layers of LeNet-5: counts and formulas of the paper, connections that stay cut, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Options
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import ShapeError
from dnnstack.common.options import LARGEST, OptionError
from dnnstack.graph.geometry import Window
from dnnstack.graph.graph import Graph, Op, Shape, Tensor
from dnnstack.graph.ops import (
    ChannelScale,
    Col2im,
    ConnectFilters,
    Heaviside,
    Im2col,
    Pad2d,
    Rbf,
    RowLoss,
    RowLossBackward,
)
from dnnstack.layers.build import LAYERS, LayerSpec, build_layers
from dnnstack.layers.connections import LENET5, Connections
from dnnstack.layers.conv import Conv2dLayer
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.layers.losses.hinge import MultiMargin
from dnnstack.layers.losses.perceptron import PerceptronError
from dnnstack.layers.rbf import DIGITS, RbfLayer, bitmaps
from dnnstack.layers.whitening import Dirac
from dnnstack.optimizers.sgd import Sgd
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing

from ..support import composed
from ..support.by_hand import NINE
from ..support.opened import opened

BACKENDS = pytest.mark.parametrize("device", ["numpy", "cpu"])


@pytest.mark.parametrize(("pooling", "wanted"), [("sum", 3 * 12 - 1), ("average", 3 * 3 - 1)])
def test_subsampling_is_a_coefficient_times_the_sum_plus_a_bias(pooling, wanted):
    """Over the first window of 2x2 of a picture of 1 to 9, of which only that one fits."""
    layer = LAYERS["scaled_subsampling"]("s", (1, 3, 3), pooling=pooling)
    graph = Graph("one", 1)
    x = graph.tensor("x", (1, 1, 3, 3), "float32", "input")
    graph.results["y"] = y = layer.forward(graph, x)
    executable = ReferenceBackend(1).compile({"one": graph})
    weight, bias = (p.tensor for p in layer.parameters())
    executable.write(weight, np.array([3.0], np.float32))
    executable.write(bias, np.array([-1.0], np.float32))
    executable.write(x, np.array(NINE, np.float32))
    executable.run("one")
    np.testing.assert_allclose(executable.read(y), [[[[wanted]]]])


def test_table_1_of_the_paper():
    """Row by row as printed: which of the 16 maps of C3 each of the 6 maps of S2 feeds."""
    printed = (
        "X...XXX..XXXX.XX",
        "XX...XXX..XXXX.X",
        "XXX...XXX..X.XXX",
        ".XXX..XXXX..X.XX",
        "..XXX..XXXX.XX.X",
        "...XXX..XXXX.XXX",
    )
    for row, line in enumerate(printed):
        assert [row in maps for maps in LENET5] == [cell == "X" for cell in line]


def test_maps_are_counted_from_0():
    (form,) = Connections.__metadata__  # type: ignore[attr-defined]
    assert form.read([[0], [LARGEST, 0]]) == ((0,), (LARGEST, 0))
    for wrong in ([[-1]], [[LARGEST + 1]], [[0], []], []):
        with pytest.raises(OptionError):
            form.read(wrong)


def test_each_weight_starts_in_the_range_of_its_own_filter():
    """+-2.4 / inputs: 75, 100 or 150 of them."""
    layer = Conv2dLayer("c3", (6, 14, 14), filters=16, kernel_size=5, connections="lenet5")
    fans = layer.parameters()[0].fan_in
    assert fans == tuple(25 * len(LENET5[o]) for o, _ in layer.pairs)
    from dnnstack.common import random
    from dnnstack.layers.initializers import Initializer

    drawn = Initializer("fan_in_uniform", 2.4).draw((60, 5, 5), fans, 1, random.key(1, "test"))
    for fan in (75, 100, 150):
        largest = np.abs(drawn[np.array(fans) == fan]).max()
        assert 0.95 * 2.4 / fan < largest <= 2.4 / fan


@BACKENDS
@pytest.mark.parametrize("algorithm", ["auto", "im2col"])
@pytest.mark.parametrize("rule", [Sgd(), Sgd(momentum=0.9, nesterov=True, weight_decay=0.05)])
def test_cut_connections_stay_exactly_zero(device, algorithm, rule):
    table = [[0], [1, 2], [0, 1, 2]]
    specs = [
        LayerSpec(
            "conv2d",
            "c",
            {"filters": 3, "kernel_size": 2, "connections": table, "algorithm": algorithm},
        ),
        LayerSpec("scaled_tanh"),
        LayerSpec("flatten"),
        LayerSpec("dense", options={"units": 3}),
    ]
    shape = (3, 5, 5)
    net = Network(build_layers(specs, shape), CrossEntropyLoss(), shape, 3)
    pixels = Preprocessing((0.01,) * 3, (-1.0,) * 3)
    graph = composed.train_graph(net, 4, "t", 8, 2, 6, pixels, rule)
    filters = next(op.filters for op in graph.ops if isinstance(op, ConnectFilters))
    graph.results["filters"] = filters
    executable = opened(device).compile({"train": graph}, Options("fp32", tune=False))
    rng = np.random.default_rng(2)
    executable.write(graph["images"], rng.integers(0, 256, (8, *shape)).astype(np.uint8))
    executable.write(graph["labels"], rng.integers(0, 3, 8).astype(np.int32))
    executable.write(graph["order"], np.arange(8, dtype=np.int32))
    executable.write(graph["rates"], np.full(6, 0.1, np.float32))
    first = net.initial_values(1)
    for tensor, values in first.items():
        executable.write(tensor, values)
    executable.run("train", 6)
    seen = executable.read(filters)
    for o, maps in enumerate(table):
        for c in range(3):
            assert (seen[o, c] == 0.0).all() == (c not in maps)
    weight = net.parameters()[0].tensor
    assert np.abs(executable.read(weight) - first[weight]).min() > 0


WRONG: list[tuple[str, Shape, dict[str, Any], str]] = [
    ("rbf", (83,), {}, r"expects 84 inputs, .* got \(83,\); put 'dense: \{units: 84\}'"),
    ("pad2d", (84,), {"padding": 2}, r"expects a picture .* got \(84,\)"),
    ("scaled_subsampling", (84,), {}, r"expects a picture .* got \(84,\)"),
    ("scaled_subsampling", (3, 4, 4), {"pool_size": 5}, "a window of 5x5 does not fit"),
]
CONNECTIONS: list[tuple[Any, str]] = [
    ("lenet5", "connections has 16 lists of input maps, but there are 2 filters"),
    ([[0], [1], [2]], "has 3 lists .* 2 filters; give one list for each filter"),
    ([[0], [3]], r"filter 1: \[3\] names a map that does not exist; the input has the maps 0 to 2"),
    ([[0], [1, 1]], "filter 1: expected each map once"),
]


@pytest.mark.parametrize(("kind", "shape", "options", "message"), WRONG)
def test_what_cannot_work(kind, shape, options, message):
    with pytest.raises(ShapeError, match=message):
        LAYERS[kind]("l", shape, **options)


@pytest.mark.parametrize(("table", "message"), CONNECTIONS)
def test_connections_that_cannot_be(table, message):
    with pytest.raises(ShapeError, match=message):
        Conv2dLayer("c", (3, 5, 5), filters=2, kernel_size=2, connections=table)


def test_an_identity_has_no_place_in_connections():
    with pytest.raises(ShapeError, match="dirac needs filters connected to every map"):
        Conv2dLayer(
            "c",
            (2, 5, 5),
            filters=2,
            kernel_size=3,
            connections=[[0], [1]],
            kernel_initializer=Dirac(),
        )


def test_connections_and_groups_exclude_each_other():
    with pytest.raises(ShapeError, match="connections cannot be combined with groups"):
        Conv2dLayer("c", (4, 5, 5), filters=2, kernel_size=2, groups=2, connections=[[0], [1]])


def test_the_bitmaps_are_ten_different_digits():
    digits = np.array(bitmaps(DIGITS))
    assert digits.shape == (10, 7 * 12)
    assert set(np.unique(digits)) == {-1.0, 1.0}
    apart = ((digits[:, None] - digits[None]) ** 2).sum(2)
    # Each pixel that differs counts 4: the nearest pair, 0 and 6, or 5 and 6, differs in 11.
    assert apart[~np.eye(10, dtype=bool)].min() >= 44


def test_the_nearest_bitmap_has_the_largest_score():
    layer = RbfLayer("rbf", (84,))
    graph = Graph("one", 10)
    x = graph.tensor("x", (10, 84), "float32", "input")
    graph.results["y"] = y = layer.forward(graph, x)
    executable = ReferenceBackend(1).compile({"one": graph})
    executable.write(x, np.array(layer.centres, np.float32))
    executable.run("one")
    scores = executable.read(y)
    assert (scores.argmax(1) == np.arange(10)).all()
    np.testing.assert_array_equal(np.diag(scores), 0.0)


def test_a_threshold_inside_a_net_has_no_gradient():
    layer = LAYERS["heaviside"]("h", (3,))
    graph = Graph("one", 1)
    layer.forward(graph, graph.tensor("x", (1, 3), "float32", "input"))
    with pytest.raises(ShapeError, match=r"layer 'h' \(heaviside\) has no gradient"):
        layer.backward(graph, graph.tensor("dy", (1, 3), "float32", "input"))


def shaped(*shape: int) -> Tensor:
    return Tensor("t", shape, "float32", "input")


MISFITS: list[Op] = [
    ConnectFilters(weights=shaped(2, 1, 1), filters=shaped(2, 2, 1, 1), pairs=((0, 0), (0, 0))),
    ConnectFilters(weights=shaped(1, 1, 1), filters=shaped(2, 2, 1, 1), pairs=((0, 2),)),
    ConnectFilters(weights=shaped(1, 1, 2), filters=shaped(2, 2, 1, 1), pairs=((0, 1),)),
    ConnectFilters(weights=shaped(2, 1, 1), filters=shaped(2, 2, 1, 1), pairs=((0, 1),)),
    Pad2d(x=shaped(1, 1, 2, 2), y=shaped(1, 1, 3, 3), padding=(1, 1, 1, 1)),
    Pad2d(x=shaped(1, 1, 3, 3), y=shaped(1, 1, 2, 3), padding=(-1, 0, 0, 0)),
    ChannelScale(x=shaped(1, 3, 2, 2), s=shaped(2), y=shaped(1, 3, 2, 2)),
    ChannelScale(x=shaped(1, 3, 2, 2), s=shaped(3), y=shaped(1, 3, 2, 1)),
    Rbf(x=shaped(1, 3), y=shaped(1, 2), centres=((1.0, 1.0), (1.0, -1.0))),
    Rbf(x=shaped(1, 2), y=shaped(1, 3), centres=((1.0, 1.0), (1.0, -1.0))),
    Heaviside(x=shaped(1, 2), y=shaped(2, 1)),
    Im2col(x=shaped(1, 2, 3, 3), columns=shaped(4, 7), window=Window((2, 2))),
    Col2im(x=shaped(1, 2, 3, 3), columns=shaped(9, 8), window=Window((2, 2))),
    RowLoss(x=shaped(3, 2), target=shaped(2), loss=shaped(1), formula=MultiMargin()),
    RowLoss(x=shaped(3, 2), target=shaped(3), loss=shaped(3), formula=MultiMargin()),
    RowLossBackward(x=shaped(3, 2), target=shaped(3), dx=shaped(3, 3), formula=PerceptronError()),
]


@pytest.mark.parametrize("op", MISFITS, ids=lambda op: op.name)
def test_shape_rules(op):
    with pytest.raises(ShapeError, match=f"^{op.name}.*: shapes d"):
        op.check()
