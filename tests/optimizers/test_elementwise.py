"""Optimizers that are a formula, over the parameters of whole nets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import ElementwiseUpdate
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses.cross_entropy import CrossEntropyLoss
from dnnstack.optimizers.groups import stretches
from dnnstack.training.network import Network
from dnnstack.training.preprocessing import Preprocessing
from dnnstack.training.sections import Composition

from ..support import composed
from ..support.update_formulas import AdagradUpdate, ByFormula

# Five channels: a convolution's filters are padded in many layouts. Tanh has no kink.
STACK = [
    LayerSpec("conv2d", options={"filters": 5, "kernel_size": 3}),
    LayerSpec("tanh"),
    LayerSpec("avg_pool2d"),
    LayerSpec("conv2d", options={"filters": 9, "kernel_size": 2}),
    LayerSpec("tanh"),
    LayerSpec("flatten"),
    LayerSpec("dense", options={"units": 4}),
]
SHAPE, BATCH, COUNT, STEPS = (3, 9, 9), 6, 12, 4


def graphs(optimizer: Composition) -> tuple[Network, dict[str, Graph]]:
    network = Network(build_layers(STACK, SHAPE), CrossEntropyLoss(), SHAPE, 4)
    scaling = Preprocessing.standardize([0.5] * 3, [0.25] * 3)
    found = {}
    for first in stretches(optimizer.groups, 2, STEPS):
        graph = composed.train_graph(
            network, BATCH, "data", COUNT, 2, STEPS, scaling, optimizer, first_step=first
        )
        found[graph.name] = graph
    return network, found


def test_what_an_update_is_called_and_costs() -> None:
    optimizer = Composition(ByFormula(chosen=AdagradUpdate(), weight_decay=0.01))
    (graph,) = graphs(optimizer)[1].values()
    (op,) = (op for op in graph.ops if isinstance(op, ElementwiseUpdate))
    assert op.name == "AdagradUpdate"
    assert op.flops() == 8 * op.size()
    assert op.bytes() == 4 * 5 * op.size()


@pytest.mark.parametrize("field", ["start", "states", "gradients"])
def test_one_of_everything_for_each_parameter(field: str) -> None:
    (graph,) = graphs(Composition(ByFormula(chosen=AdagradUpdate())))[1].values()
    (op,) = (op for op in graph.ops if isinstance(op, ElementwiseUpdate))
    with pytest.raises(ShapeError, match=r"^AdagradUpdate\(.*: shapes do not fit"):
        replace(op, **{field: getattr(op, field)[1:]}).check()
