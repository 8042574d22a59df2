"""Losses and metrics, checked by hand; the third sample is masked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.graph import ops
from dnnstack.layers.losses.mean_squared_error import MeanSquaredError

from ...support.by_hand import TARGET, check, compute
from ...support.formulas import VARIANTS

LOG_P = np.log([[0.25, 0.75], [0.5, 0.5], [0.1, 0.9]]).tolist()
WANTED = np.array([1, 0, -1], TARGET)


@pytest.mark.parametrize(("reduction", "count"), [("mean", 2), ("sum", 1)])
def test_cross_entropy(reduction, count):
    fields = {"x": LOG_P, "target": WANTED, "reduction": reduction, "formula": ops.CrossEntropy()}
    loss = compute(ops.RowLoss, {"loss": (1,)}, **fields)["loss"]
    check(loss, [(-math.log(0.75) - math.log(0.5)) / count])
    dlog_p = compute(ops.RowLossBackward, {"dx": (3, 2)}, **fields)["dx"]
    check(dlog_p, np.array([[0, -1], [-1, 0], [0, 0]]) / count)


@pytest.mark.parametrize(("reduction", "count"), [("mean", 2), ("sum", 1)])
def test_label_smoothing(reduction, count):
    """With s = 0.2 and two classes the target is (0.1, 0.9)."""
    fields = {"target": WANTED, "reduction": reduction}
    plain = {"x": LOG_P, "formula": ops.CrossEntropy(0.2)} | fields
    first = -0.1 * math.log(0.25) - 0.9 * math.log(0.75)
    total = first - math.log(0.5)
    check(compute(ops.RowLoss, {"loss": (1,)}, **plain)["loss"], [total / count])
    dlog_p = compute(ops.RowLossBackward, {"dx": (3, 2)}, **plain)["dx"]
    check(dlog_p, np.array([[-0.1, -0.9], [-0.9, -0.1], [0, 0]]) / count)

    x = (np.array(LOG_P) + np.array([[5.0], [0.0], [-3.0]])).tolist()
    smooth = {"label_smoothing": 0.2} | fields
    shapes = {"log_p": (3, 2), "loss": (1,)}
    fused = compute(ops.SoftmaxCrossEntropy, shapes, x=x, **smooth)
    check(fused["loss"], [total / count])
    check(fused["log_p"], LOG_P)
    fields = {"log_p": fused["log_p"].tolist()} | smooth
    dx = compute(ops.SoftmaxCrossEntropyBackward, {"dx": (3, 2)}, **fields)["dx"]
    check(dx, np.array([[0.15, -0.15], [-0.4, 0.4], [0, 0]]) / count)


@pytest.mark.parametrize(("reduction", "count"), [("mean", 2), ("sum", 1)])
def test_mean_squared_error(reduction, count):
    x = [[0.5, 2.0], [1.0, -3.0], [7.0, 7.0]]
    fields = {"x": x, "target": WANTED, "reduction": reduction, "formula": MeanSquaredError()}
    loss = compute(ops.RowLoss, {"loss": (1,)}, **fields)["loss"]
    check(loss, [((0.25 + 1) / 2 + (0 + 9) / 2) / count])
    dx = compute(ops.RowLossBackward, {"dx": (3, 2)}, **fields)["dx"]
    check(dx, np.array([[0.5, 1], [0, -3], [0, 0]]) / count)


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


@pytest.mark.parametrize("loss", VARIANTS)
def test_a_label_beyond_the_scores_is_an_error(loss):
    fields = {"x": [[-1, -1]], "target": np.array([2], TARGET), "formula": VARIANTS[loss].formula}
    for kind, out in ((ops.RowLoss, {"loss": (1,)}), (ops.RowLossBackward, {"dx": (1, 2)})):
        with pytest.raises(DatasetError, match="label 2, but the network gives 2 scores"):
            compute(kind, out, **fields)


@pytest.mark.parametrize(("reduction", "added"), [("mean", 1.5), ("sum", 0.5)])
def test_metrics(reduction, added):
    """A tie between scores is answered by the first class; the masked sample counts nowhere."""
    scores = [[1.0, 1.0], [1.0, 1.0], [0.0, 2.0], [9.0, 0.0]]
    sums = compute(
        ops.Metrics,
        {},
        scores=scores,
        target=np.array([0, 0, 1, -1], TARGET),
        loss=[0.5],
        sums=[10.0, 20.0, 30.0],
        reduction=reduction,
    )["sums"]
    check(sums, [10 + added, 23, 33])
