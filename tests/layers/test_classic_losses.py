"""The older losses: values worked out by hand, masks, and what each may train."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import ShapeError
from dnnstack.graph.ops import RowLossBackward
from dnnstack.layers.build import LayerSpec, build_layers
from dnnstack.layers.losses import LOSSES
from dnnstack.layers.losses.expected_cost import OneMinusPLoss
from dnnstack.layers.losses.hinge import HingeLoss
from dnnstack.layers.losses.loss import Loss
from dnnstack.layers.losses.perceptron import PerceptronLoss
from dnnstack.layers.losses.rbf_map import MapCriterion, RbfMapLoss
from dnnstack.training.network import Network

from ..support.by_hand import TARGET, compute

# Two samples that count and a masked one.
T = np.array([2, -1, 0], TARGET)


P = [[0.25, 0.5, 0.25], [0.1, 0.2, 0.7], [0.5, 0.25, 0.25]]


def test_a_penalty_far_above_j_is_not_raised_further():
    fields = {"x": [[-1.0, -60.0]], "target": np.array([0], TARGET), "formula": MapCriterion(20.0)}
    dx = compute(RowLossBackward, {"dx": (1, 2)}, **fields)["dx"]
    assert 0 < dx[0, 1] < 1e-25


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
