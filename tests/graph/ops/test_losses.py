"""Losses and metrics, checked by hand; the third sample is masked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError, ShapeError
from dnnstack.graph import ops

from ...support.by_hand import TARGET, check, compute
from ...support.formulas import VARIANTS
from ...support.op_cases_losses import WideCubes

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


ANSWERS = {
    "largest": ([[1, 3, 3], [2, 1, 0], [0, 0, 0]], [[0, 5, 5], [0, 2, 1], [1, 1, 0]], 2),
    "threshold": ([[0.5, 0.7], [0.6, 0.4]], [[0.5, 0.6], [1, 1]], 1 + 0.5),
    "near": ([[1, 2], [0, 4]], [[3, 2], [0, 1]], 2 + 4.5),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_answers_to_rows_of_numbers(answer):
    """A masked sample is right in everything, and does not count."""
    scores, target, wanted = ANSWERS[answer]
    fields = {"scores": [*scores, scores[0]], "target": [*target, [math.nan] * len(scores[0])]}
    fields |= {"loss": [0.25], "sums": np.array([1.0, 2.0, 3.0]), "answer": answer}
    sums = compute(ops.Metrics, {}, **fields)["sums"]
    n = len(scores)
    check(sums, [1 + 0.25 * n, 2 + wanted, 3 + n])


def test_what_a_target_must_be():
    """A class of each row, or a number for each score, as the formula or the answer says."""
    narrow, wide = np.zeros(2, TARGET), [[0.0, 1.0], [1.0, 0.0]]
    few, floats = [[0.0], [1.0]], [0.0, 1.0]
    whole = np.zeros((2, 2), TARGET)
    rest = {"loss": [0.25], "sums": np.zeros(3)}
    x = [[0.5, 2.0], [1.0, 3.0]]
    for kind, given, fits in (
        (ops.RowLoss, {"x": x, "formula": WideCubes()}, (wide,)),
        (ops.RowLoss, {"x": x, "formula": ops.CrossEntropy()}, (narrow,)),
        (ops.RowLossBackward, {"x": x, "formula": WideCubes()}, (wide,)),
        (ops.RowLossBackward, {"x": x, "formula": ops.CrossEntropy()}, (narrow,)),
        (ops.Metrics, {"scores": x, **rest}, (narrow, wide)),
        (ops.Metrics, {"scores": x, **rest, "answer": "threshold"}, (wide,)),
        (ops.Metrics, {"scores": x, **rest, "answer": "near"}, (wide,)),
    ):
        outputs = {ops.RowLoss: {"loss": (1,)}, ops.RowLossBackward: {"dx": (2, 2)}}.get(kind, {})
        for target in (narrow, wide, few, floats, whole):
            if any(target is each for each in fits):
                compute(kind, outputs, target=target, **given)
            else:
                with pytest.raises(ShapeError, match="shapes do not fit"):
                    compute(kind, outputs, target=target, **given)


@pytest.mark.parametrize("loss", VARIANTS)
def test_a_label_beyond_the_scores_is_an_error(loss):
    fields = {"x": [[-1, -1]], "target": np.array([2], TARGET), "formula": VARIANTS[loss].formula}
    for kind, out in ((ops.RowLoss, {"loss": (1,)}), (ops.RowLossBackward, {"dx": (1, 2)})):
        with pytest.raises(DatasetError, match="label 2, but the network gives 2 scores"):
            compute(kind, out, **fields)
