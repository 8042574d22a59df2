"""Layers are complete when they are built: shapes, parameters, and errors that say what to do."""

from __future__ import annotations

from typing import Any

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.graph import Graph, Shape
from dnnstack.graph.ops import Pool2dBackward
from dnnstack.layers.build import LAYERS
from dnnstack.layers.dense import Dense
from dnnstack.layers.losses import LOSSES

from ..support.stored import tuples

PICTURE = (3, 8, 6)

BUILT: list[tuple[str, Shape, dict[str, Any], Shape, dict[str, Shape]]] = tuples(__file__, "built")


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


WRONG: list[tuple[str, Shape, dict[str, Any], str]] = tuples(__file__, "wrong")


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
    with pytest.raises(
        ShapeError,
        match=r"gives \(50, 4\), .* 10 (classes|numbers|questions of yes or no); end .*units: 10",
    ):
        LOSSES[kind]().check((50, 4), 10)


def test_options_of_layers_are_named() -> None:
    """What the first of them is may change."""
    assert Dense("d", (4,), units=3).output_shape == (3,)
    with pytest.raises(TypeError):
        Dense("d", (4,), 3)  # type: ignore[misc]
