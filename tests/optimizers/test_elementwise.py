"""Optimizers that are a formula, over the parameters of whole nets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
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
from ..support.update_formulas import AdagradUpdate, ByFormula, LionUpdate, RmspropUpdate

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


# Of the formula, its weight decay, and what 20 steps end with: RMSprop's numbers are those of
# PyTorch 2.14, Lion's those of its authors' program.
AFTER_20 = [
    (RmspropUpdate(), 0.0, [-0.4286919516532, 0.1510558254172, 1.869232868757]),
    (RmspropUpdate(0.9, 1e-3), 0.1, [0.06939348147642, 0.5971891768146, 1.193288860622]),
    (
        RmspropUpdate(0.9, 1e-3, 0.0, True),
        0.1,
        [0.05220777254792, 0.5832967657402, 1.206390067864],
    ),
    (RmspropUpdate(0.9, 1e-3, 0.8), 0.1, [-0.09378183398934, 0.364223375407, 1.280094406064]),
    (
        RmspropUpdate(0.9, 1e-3, 0.8, True),
        0.1,
        [-0.1268058893341, 0.3398628940008, 1.300548595968],
    ),
    (LionUpdate(), 0.0, [0.3183118126302, 0.7009292574434, 1.178105442834]),
    (LionUpdate(0.6, 0.8), 0.3, [0.2901341813615, 0.6220092345739, 1.074915647316]),
]


@pytest.mark.parametrize(("formula", "decay", "wanted"), AFTER_20)
def test_twenty_steps_in_float64(formula, decay, wanted) -> None:
    places = np.arange(3)
    p, states = np.sin(0.7 * places + 0.3), [np.zeros(3) for _ in formula.families]
    for t in range(20):
        formula.update(p, np.cos(1.3 * places + 2.1 * t), states, 0.1 / (1 + t), decay, t + 1)
    np.testing.assert_allclose(p, wanted, rtol=1e-11)


def test_a_variance_that_rounding_makes_negative_is_zero() -> None:
    formula, p = RmspropUpdate(0.9, 1e-3, 0.0, True), np.zeros(1, np.float32)
    mean, g = np.ones(1, np.float32), np.ones(1, np.float32)
    square = np.nextafter(mean, np.float32(0.0))
    formula.update(p, g, [square, mean], 1e-6, 0.0, 9)
    assert square < mean * mean
    np.testing.assert_allclose(p, -1e-3, rtol=1e-6)
