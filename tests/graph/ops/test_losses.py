"""Losses and metrics, checked by hand; the third sample is masked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.graph import ops

from ...support.by_hand import TARGET, check, compute
from ...support.formulas import VARIANTS

LOG_P = np.log([[0.25, 0.75], [0.5, 0.5], [0.1, 0.9]]).tolist()
WANTED = np.array([1, 0, -1], TARGET)


def test_loss_of_masked_samples_alone_is_zero():
    masked = {"x": LOG_P, "target": np.array([-1, -1, -1], TARGET), "formula": ops.CrossEntropy()}
    check(compute(ops.RowLoss, {"loss": (1,)}, **masked)["loss"], [0])
    check(compute(ops.RowLossBackward, {"dx": (3, 2)}, **masked)["dx"], np.zeros((3, 2)))


@pytest.mark.parametrize("margin", [10.0, 800.0, 1e30])
def test_certain_and_wrong_is_a_loss_as_large_as_the_margin(margin):
    """Even where the probability of the right class is too small for a float."""
    target = np.array([1], TARGET)
    log_p = compute(ops.Softmax, {"y": (1, 2)}, x=[[margin, 0.0]], log=True)["y"]
    fields = {"x": log_p.tolist(), "target": target, "formula": ops.CrossEntropy()}
    loss = compute(ops.RowLoss, {"loss": (1,)}, **fields)["loss"]
    dlog_p = compute(ops.RowLossBackward, {"dx": (1, 2)}, **fields)["dx"]
    slopes = {"y": log_p.tolist(), "dy": dlog_p.tolist(), "log": True}
    dx = compute(ops.SoftmaxBackward, {"dx": (1, 2)}, **slopes)["dx"]
    check(loss, [margin + math.log1p(math.exp(-margin))])
    check(dx, np.array([[1.0, -1.0]]) / (1.0 + math.exp(-margin)))


@pytest.mark.parametrize("loss", [name for name in VARIANTS if VARIANTS[name].target == "class"])
def test_a_label_beyond_the_scores_is_an_error(loss):
    fields = {"x": [[-1, -1]], "target": np.array([2], TARGET), "formula": VARIANTS[loss].formula}
    for kind, out in ((ops.RowLoss, {"loss": (1,)}), (ops.RowLossBackward, {"dx": (1, 2)})):
        with pytest.raises(DatasetError, match="label 2, but the network gives 2 scores"):
            compute(kind, out, **fields)
