"""Layers as one of several ranks computes them: units shared out, bands of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from dnnstack.common.errors import ConfigError, ShapeError
from dnnstack.graph.graph import Graph, Op
from dnnstack.graph.ops import (
    BiasAdd,
    BiasGrad,
    ExchangeUnits,
    ExchangeUnitsBackward,
    GatherRows,
    GatherRowsBackward,
    MatMul,
)
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.composite import backward_all, forward_all, walk
from dnnstack.layers.layer import Layer
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.bands import Band, check_layers, in_bands, stretch
from dnnstack.passes.units import Units, check_members, over_units, parameters_of

from ..support.stored import cases
from .plain import WEIGHTS, plain


def dense(split: bool = True, **options: Any) -> LayerSpec:
    return LayerSpec("dense", options={"units": 4, **options}, parallel="units" if split else None)


def conv(way: str | None = "filters", **options: Any) -> LayerSpec:
    given = {"filters": 4, "kernel_size": 3, "padding": "same"}
    return LayerSpec("conv2d", options={**given, **options}, parallel=way)


def ops_of(layers: Sequence[Layer], *shape: int) -> list[Op]:
    graph = Graph("train", shape[0], training=True)
    y = forward_all(layers, graph, graph.tensor("x", shape, role="input"))
    backward_all(layers, graph, graph.tensor("dy", y.shape, role="input"))
    return graph.ops


def test_units_of_a_dense_layer() -> None:
    (layer,) = over_units(build_layers([dense()], (3,)), 2)
    forward, backward = ops_of([layer], 5, 3)[:4], ops_of([layer], 5, 3)[4:]
    assert [type(op) for op in forward] == [GatherRows, MatMul, BiasAdd, ExchangeUnits]
    assert [op.writes()[0].shape for op in forward] == [(10, 3), (10, 2), (10, 2), (5, 4)]
    kinds = [ExchangeUnitsBackward, MatMul, BiasGrad, MatMul, GatherRowsBackward]
    assert [type(op) for op in backward] == kinds
    assert [op.writes()[0].shape for op in backward] == [(10, 2), (2, 3), (2,), (10, 3), (5, 3)]
    names = [op.writes()[0].name for op in (*forward, *backward)]
    assert names == [
        *(f"dense_1.{n}" for n in ("gathered", "product", "y", "exchanged", "dy")),
        *("dense_1.weight.grad", "dense_1.bias.grad", "dense_1.dx", "dense_1.summed_dx"),
    ]
    assert {op.origin[0].layer for op in (*forward, *backward)} == {"dense_1"}
    assert [p.tensor.shape for p in layer.parameters()] == [(2, 3), (2,)]
    assert parameters_of(Units, [layer]) == {p.tensor for p in layer.parameters()}


def test_a_frozen_layer_stays_frozen() -> None:
    layers = build_layers([dense(), LayerSpec("sequential", options={"layers": [dense()]})], (3,))
    for layer in layers:
        layer.freeze()
    assert all(p.frozen for layer in over_units(layers, 2) for p in layer.parameters())


def blocks() -> list[Layer]:
    body = [conv(), LayerSpec("relu")]
    options = {"body": body, "shortcut": "projection"}
    branches: list[list[LayerSpec]] = [[conv(None)], [conv()], []]
    specs = [
        LayerSpec("sequential", options={"layers": [conv(None), conv()]}),
        LayerSpec("residual", options=options),
        LayerSpec("concat", options={"branches": branches}),
        LayerSpec("flatten"),
        dense(split=False),
    ]
    return build_layers(specs, (2, 4, 4))


def test_layers_inside_blocks_are_replaced_and_all_else_stays() -> None:
    layers = blocks()
    found = over_units(layers, 2)
    before, after = [*walk(layers)], [*walk(found)]
    assert [layer.name for layer in after] == [layer.name for layer in before]
    split = [layer for layer in after if isinstance(layer, Units)]
    assert [layer.name for layer in split] == [
        *("sequential_1.conv2d_2", "residual_1.conv2d_3", "concat_1.conv2d_5")
    ]
    same = [new is old for new, old in zip(after, before, strict=True) if not old.children]
    assert same.count(False) == 3
    # The layers that were given are as before.
    assert not any(isinstance(layer, Units) for layer in walk(layers))
    written = {op.origin[0].layer for op in ops_of(found, 3, 2, 4, 4) if isinstance(op, GatherRows)}
    assert written == {layer.name for layer in split}
    assert sum(isinstance(op, GatherRows) for op in ops_of(layers, 3, 2, 4, 4)) == 0


def test_units_that_do_not_divide_are_refused() -> None:
    layers = build_layers([dense(units=6)], (3,))
    check_layers(layers, 3)
    with pytest.raises(
        ShapeError, match="its 6 units cannot be shared out evenly over 4 ranks; use 2, 3, 6 ranks"
    ):
        check_layers(layers, 4)
    check_layers(build_layers([dense(split=False, units=6)], (3,)), 4)


def test_bands_up_to_the_last_that_says_so_and_what_works_by_pixel() -> None:
    specs = [conv("space"), LayerSpec("relu"), conv("space"), LayerSpec("tanh"), conv(None)]
    layers = build_layers(specs, (2, 4, 4))
    assert stretch(layers) == 4
    found = in_bands(layers, 2)
    assert [isinstance(layer, Band) for layer in found] == [True] * 4 + [False]
    assert [(layer.first, layer.last) for layer in found if isinstance(layer, Band)] == [
        *((True, False), (False, False), (False, False), (False, True))
    ]
    banded = {p.tensor for layer in layers[:4] for p in layer.parameters()}
    assert parameters_of(Band, found) == banded
    assert len(banded) == 4
    assert [p for layer in found for p in layer.parameters()] == [
        p for layer in layers for p in layer.parameters()
    ]
    assert stretch(layers[-1:]) == 0


@pytest.mark.parametrize(
    ("split", "pruned", "bits", "wanted"), cases(__file__, "what_must_be_seen_whole_is_not_split")
)
def test_what_must_be_seen_whole_is_not_split(
    split: tuple[int, ...], pruned: tuple[str, ...], bits: dict[str, int], wanted: str | None
) -> None:
    section, apart = plain(rule=Muon(Sgd())), frozenset(WEIGHTS[i] for i in split)
    if wanted is None:
        check_members(section, apart, pruned, bits)
        return
    with pytest.raises(ConfigError, match=wanted):
        check_members(section, apart, pruned, bits)
