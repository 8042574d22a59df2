"""Losses and metrics, checked by hand; the third sample is masked."""

from __future__ import annotations

import math

import numpy as np
import pytest
from by_hand import TARGET, check, compute
from dnnstack.common.errors import DatasetError
from dnnstack.layers.ops import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Metrics,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)

P = [[0.25, 0.75], [0.5, 0.5], [0.1, 0.9]]
WANTED = np.array([1, 0, -1], TARGET)


@pytest.mark.parametrize(("reduction", "count"), [("mean", 2), ("sum", 1)])
def test_cross_entropy(reduction: str, count: int) -> None:
    fields = {"p": P, "target": WANTED, "reduction": reduction}
    loss = compute(CrossEntropy, {"loss": (1,)}, **fields)["loss"]
    check(loss, [(-math.log(0.75) - math.log(0.5)) / count])
    dp = compute(CrossEntropyBackward, {"dp": (3, 2)}, **fields)["dp"]
    check(dp, np.array([[0, -4 / 3], [-2, 0], [0, 0]]) / count)


@pytest.mark.parametrize(("reduction", "count"), [("mean", 2), ("sum", 1)])
def test_label_smoothing(reduction: str, count: int) -> None:
    """With s = 0.2 and two classes the target is (0.1, 0.9)."""
    smooth = {"target": WANTED, "reduction": reduction, "label_smoothing": 0.2}
    first = -0.1 * math.log(0.25) - 0.9 * math.log(0.75)
    total = first - math.log(0.5)
    check(compute(CrossEntropy, {"loss": (1,)}, p=P, **smooth)["loss"], [total / count])
    dp = compute(CrossEntropyBackward, {"dp": (3, 2)}, p=P, **smooth)["dp"]
    check(dp, np.array([[-0.4, -1.2], [-1.8, -0.2], [0, 0]]) / count)

    x = (np.log(P) + np.array([[5.0], [0.0], [-3.0]])).tolist()
    shapes = {"log_p": (3, 2), "loss": (1,)}
    fused = compute(SoftmaxCrossEntropy, shapes, x=x, **smooth)
    check(fused["loss"], [total / count])
    check(fused["log_p"], np.log(P))
    fields = {"log_p": fused["log_p"].tolist()} | smooth
    dx = compute(SoftmaxCrossEntropyBackward, {"dx": (3, 2)}, **fields)["dx"]
    check(dx, np.array([[0.15, -0.15], [-0.4, 0.4], [0, 0]]) / count)


@pytest.mark.parametrize(("reduction", "count"), [("mean", 2), ("sum", 1)])
def test_mean_squared_error(reduction: str, count: int) -> None:
    x = [[0.5, 2.0], [1.0, -3.0], [7.0, 7.0]]
    fields = {"x": x, "target": WANTED, "reduction": reduction}
    loss = compute(MeanSquaredError, {"loss": (1,)}, **fields)["loss"]
    check(loss, [((0.25 + 1) / 2 + (0 + 9) / 2) / count])
    dx = compute(MeanSquaredErrorBackward, {"dx": (3, 2)}, **fields)["dx"]
    check(dx, np.array([[0.5, 1], [0, -3], [0, 0]]) / count)


def test_loss_of_masked_samples_alone_is_zero() -> None:
    masked = np.array([-1, -1, -1], TARGET)
    check(compute(CrossEntropy, {"loss": (1,)}, p=P, target=masked)["loss"], [0])
    check(compute(CrossEntropyBackward, {"dp": (3, 2)}, p=P, target=masked)["dp"], np.zeros((3, 2)))


def test_certain_and_wrong_is_a_large_loss_and_no_infinity() -> None:
    p, target = [[1.0, 0.0]], np.array([1], TARGET)
    loss = compute(CrossEntropy, {"loss": (1,)}, p=p, target=target)["loss"]
    dp = compute(CrossEntropyBackward, {"dp": (1, 2)}, p=p, target=target)["dp"]
    assert 700 < loss[0] < 710
    assert np.isfinite(dp).all()
    assert dp[0, 0] == 0


def test_a_label_beyond_the_scores_is_an_error() -> None:
    with pytest.raises(DatasetError, match="label 2, but the network gives 2 scores"):
        compute(CrossEntropy, {"loss": (1,)}, p=[[0.5, 0.5]], target=np.array([2], TARGET))


@pytest.mark.parametrize(("reduction", "added"), [("mean", 1.5), ("sum", 0.5)])
def test_metrics(reduction: str, added: float) -> None:
    """A tie between scores is answered by the first class; the masked sample counts nowhere."""
    scores = [[1.0, 1.0], [1.0, 1.0], [0.0, 2.0], [9.0, 0.0]]
    sums = compute(
        Metrics,
        {},
        scores=scores,
        target=np.array([0, 0, 1, -1], TARGET),
        loss=[0.5],
        sums=[10.0, 20.0, 30.0],
        reduction=reduction,
    )["sums"]
    check(sums, [10 + added, 23, 33])
