"""The older losses: values worked out by hand, masks, and what each may train."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.ops import RowLoss, RowLossBackward
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses import LOSSES
from dnnstack.layers.losses.expected_cost import OneMinusP, OneMinusPLoss, SquaredDistance
from dnnstack.layers.losses.hinge import HingeLoss, MultiMargin
from dnnstack.layers.losses.loss import Loss
from dnnstack.layers.losses.perceptron import PerceptronError, PerceptronLoss
from dnnstack.layers.losses.rbf_map import MapCriterion, RbfMapLoss
from dnnstack.training.network import Network

from ..support.by_hand import TARGET, check, compute

# Two samples that count and a masked one.
T = np.array([2, -1, 0], TARGET)
SCORES = [[0.5, 1.5, 1.0], [9.0, 9.0, 9.0], [3.0, 1.0, 2.5]]


def test_multi_margin():
    """Sample 0: 1 - 1 + 0.5 and 1 - 1 + 1.5; sample 2: only 1 - 3 + 2.5 is above 0; over K = 3."""
    fields = {"x": SCORES, "target": T, "formula": MultiMargin()}
    got = compute(RowLoss, {"loss": (1,)}, **fields)["loss"]
    check(got, [(2.0 / 3 + 0.5 / 3) / 2])
    square = fields | {"formula": MultiMargin(power=2), "reduction": "sum"}
    check(compute(RowLoss, {"loss": (1,)}, **square)["loss"], [(0.25 + 2.25) / 3 + 0.25 / 3])
    dx = compute(RowLossBackward, {"dx": (3, 3)}, **fields)["dx"]
    check(dx, np.array([[1.0, 1.0, -2.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 1.0]]) / 6)


P = [[0.25, 0.5, 0.25], [0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]


def test_one_minus_p():
    fields = {"x": P, "target": T, "formula": OneMinusP()}
    check(compute(RowLoss, {"loss": (1,)}, **fields)["loss"], [(0.75 + 0.5) / 2])
    dx = compute(RowLossBackward, {"dx": (3, 3)}, reduction="sum", **fields)["dx"]
    check(dx, [[0, 0, -1.0], [0, 0, 0], [-1.0, 0, 0]])


def test_squared_distance():
    """Sample 0: 0.25 * 4 + 0.5 * 1; sample 2: 0.25 * 1 + 0.25 * 4."""
    fields = {"x": P, "target": T, "formula": SquaredDistance()}
    check(compute(RowLoss, {"loss": (1,)}, **fields)["loss"], [(1.5 + 1.25) / 2])
    dx = compute(RowLossBackward, {"dx": (3, 3)}, reduction="sum", **fields)["dx"]
    check(dx, [[4.0, 1.0, 0], [0, 0, 0], [0, 1.0, 4.0]])


def test_map_criterion():
    """Penalties 1 and 2 against a rubbish class of weight e^-3: LeCun et al. 1998, eq. 8 and 9."""
    fields = {"x": [[-1.0, -2.0]], "target": np.array([1], TARGET)}
    plain = compute(RowLoss, {"loss": (1,)}, formula=MapCriterion(competition=False), **fields)
    check(plain["loss"], [2.0])
    total = exp(-3) + exp(-1) + exp(-2)
    fields["formula"] = MapCriterion(3.0)
    check(compute(RowLoss, {"loss": (1,)}, **fields)["loss"], [2.0 + log(total)])
    dx = compute(RowLossBackward, {"dx": (1, 2)}, **fields)["dx"]
    check(dx, [[exp(-1) / total, exp(-2) / total - 1.0]])


def test_a_penalty_far_above_j_is_not_raised_further():
    fields = {"x": [[-1.0, -60.0]], "target": np.array([0], TARGET), "formula": MapCriterion(20.0)}
    dx = compute(RowLossBackward, {"dx": (1, 2)}, **fields)["dx"]
    assert 0 < dx[0, 1] < 1e-25


def test_perceptron_error():
    x, target = [[1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], np.array([0, 1, -1], TARGET)
    fields = {"x": x, "target": target, "formula": PerceptronError(), "reduction": "sum"}
    check(compute(RowLoss, {"loss": (1,)}, **fields)["loss"], [1.0])
    dx = compute(RowLossBackward, {"dx": (3, 2)}, **fields)["dx"]
    check(dx, [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]])


def test_which_losses_hold_a_softmax():
    """Those whose formula is of probabilities, and that of units whose scores are penalties."""
    found = {name for name, loss in LOSSES.items() if loss.softmax}
    assert found == {name for name, loss in LOSSES.items() if loss().formula.of != "scores"} | {
        "rbf_map"
    }


def network(loss: Loss, *kinds: str) -> Network:
    options = {"dense": {"units": 2}}
    specs = [LayerSpec(kind, options=options.get(kind, {})) for kind in kinds]
    return Network(build_layers(specs, (2, 1, 1)), loss, (2, 1, 1), 2)


def test_a_final_softmax_is_that_of_the_loss():
    net = network(OneMinusPLoss(), "flatten", "dense", "softmax")
    infer = net.infer_graph(1)
    assert infer["probabilities"] != infer["scores"]
    assert [type(op).__name__ for op in infer.ops].count("Softmax") == 1


def test_what_is_shown_as_probabilities():
    """Scores of any size go through a softmax; those of mse and the perceptron are near 0 and 1."""

    def softmaxes(loss: Loss, *kinds: str) -> int:
        ops = network(loss, "flatten", "dense", *kinds).infer_graph(1).ops
        return [type(op).__name__ for op in ops].count("Softmax")

    assert softmaxes(HingeLoss()) == 1
    assert softmaxes(HingeLoss(), "softmax") == 1
    assert softmaxes(LOSSES["mse"]()) == 0
    assert softmaxes(PerceptronLoss(), "heaviside") == 0
    assert softmaxes(RbfMapLoss()) == 1


@pytest.mark.parametrize("kind", sorted(LOSSES.keys() - {"perceptron"}))
def test_nothing_trains_what_stands_before_a_threshold(kind):
    with pytest.raises(ShapeError, match=r"'heaviside_1' \(heaviside\) has no gradient, so '"):
        network(LOSSES[kind](), "flatten", "dense", "heaviside", "dense")


def test_the_perceptron_rule_trains_one_layer_before_a_threshold():
    network(PerceptronLoss(), "flatten", "dense", "heaviside")
    with pytest.raises(ShapeError, match="'perceptron' needs 'heaviside' as the last layer"):
        network(PerceptronLoss(), "flatten", "dense", "sigmoid")
    with pytest.raises(ShapeError, match=r"but there are 2 \('dense_1', 'dense_2'\); keep one"):
        network(PerceptronLoss(), "flatten", "dense", "dense", "heaviside")
    with pytest.raises(ShapeError, match=r"but there are 0 \(none\)"):
        network(PerceptronLoss(), "flatten", "heaviside")
    with pytest.raises(ShapeError, match="'heaviside_1'"):
        network(PerceptronLoss(), "flatten", "heaviside", "dense", "heaviside")
