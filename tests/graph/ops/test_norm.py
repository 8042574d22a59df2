"""Normalisation and dropout, checked by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common import random
from dnnstack.common.errors import ShapeError
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph, Op, Tensor

from ...support.by_hand import NINE, check, compute

# Two samples of two channels: means 2 and 3, variances 1 and 4 of the samples, 2 and 8 unbiased.
X = [[1.0, 5.0], [3.0, 1.0]]
NUMBERS = {"momentum": 0.25, "eps": 0.0}
STATE = {"running_mean": [0.0, 1.0], "running_var": [1.0, 2.0]}
OUT: dict[str, Any] = {"y": (2, 2), "mean": (2,), "inverse_std": (2,)}


def test_batch_norm():
    got = compute(ops.BatchNorm, OUT, x=X, weight=[2.0, 3.0], bias=[0.5, 0.0], **NUMBERS, **STATE)
    check(got["mean"], [2, 3])
    check(got["inverse_std"], [1, 0.5])
    check(got["y"], [[-1.5, 3], [2.5, -3]])
    # A quarter of the way to the batch's mean and unbiased variance.
    check(got["running_mean"], [0.5, 1.5])
    check(got["running_var"], [1.25, 3.5])


def test_batch_norm_without_weight_and_bias_and_with_relu():
    got = compute(ops.BatchNorm, OUT, x=X, activation="relu", **NUMBERS, **STATE)
    check(got["y"], [[0, 1], [1, 0]])


def test_eps_is_added_to_the_variance():
    got = compute(ops.BatchNorm, OUT, x=X, momentum=1.0, eps=3.0, **STATE)
    check(got["inverse_std"], [1 / 2, 1 / sqrt(7)])
    check(got["running_var"], [2, 8])


def test_pictures_are_normalised_over_their_pixels_too():
    out = {"y": (1, 1, 3, 3), "mean": (1,), "inverse_std": (1,)}
    state = {"running_mean": [0.0], "running_var": [0.0]}
    got = compute(ops.BatchNorm, out, x=NINE, momentum=1.0, eps=0.0, **state)
    check(got["running_mean"], [5])
    check(got["running_var"], [7.5])
    check(got["y"], (np.array(NINE) - 5) / sqrt(60 / 9))


# Three samples of two channels, so that no number of samples is one of channels.
SIX = np.array([[1.0, 5.0], [3.0, 1.0], [8.0, 3.0]])


def test_more_samples_than_channels():
    out: dict[str, Any] = {"y": (3, 2), "mean": (2,), "inverse_std": (2,)}
    got = compute(ops.BatchNorm, out, x=SIX, momentum=0.25, eps=0.5, **STATE)
    inverse = 1 / np.sqrt(SIX.var(0) + 0.5)
    check(got["inverse_std"], inverse)
    check(got["y"], (SIX - SIX.mean(0)) * inverse)
    check(got["running_var"], [0.75 + 0.25 * SIX.var(0, ddof=1)[0], 1.5 + 0.25 * 4])
    dy = np.array([[1.0, -2.0], [0.5, 4.0], [-3.0, 1.0]])
    statistics = {"mean": SIX.mean(0), "inverse_std": inverse, "eps": 0.5}
    back: dict[str, Any] = {"dx": (3, 2), "dw": (2,), "db": (2,)}
    got = compute(ops.BatchNormBackward, back, x=SIX, dy=dy, weight=[2.0, 3.0], **statistics)
    h = (SIX - SIX.mean(0)) * inverse
    check(got["dw"], (dy * h).sum(0))
    check(got["dx"], [2, 3] * inverse * (dy - dy.mean(0) - h * (dy * h).mean(0)))


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu"])
def test_batch_norm_backward_through_an_activation(activation):
    """The sum of its outputs, weighted, by central differences."""
    weight, bias, dy = [2.0, -1.0], [0.3, 0.5], np.array([[1.0, -2.0], [0.5, 4.0], [-3.0, 1.0]])
    out: dict[str, Any] = {"y": (3, 2), "mean": (2,), "inverse_std": (2,)}
    more: dict[str, Any] = {"eps": 0.5, "weight": weight, "bias": bias, "activation": activation}

    def forward(x: Array) -> dict[str, Array]:
        return compute(ops.BatchNorm, out, x=x, momentum=0.25, **STATE, **more)

    got = forward(SIX)
    back = {"dx": (3, 2), "dw": (2,), "db": (2,)}
    given = {"mean": got["mean"], "inverse_std": got["inverse_std"], "y": got["y"], "dy": dy}
    dx = compute(ops.BatchNormBackward, back, x=SIX, **given, **more)["dx"]
    for place in np.ndindex(3, 2):
        step = np.zeros((3, 2))
        step[place] = 1e-5
        ends = [float((forward(SIX + sign * step)["y"] * dy).sum()) for sign in (1, -1)]
        assert dx[place] == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-6, abs=1e-8)


WRONG: list[tuple[type[Op], dict[str, Any], dict[str, Any]]] = [
    (
        ops.BatchNorm,
        {"x": SIX, **NUMBERS, **STATE},
        {"y": (3, 2), "mean": (2,), "inverse_std": (2,)},
    ),
    (ops.BatchNormInference, {"x": SIX, "eps": 1.0, **STATE}, {"y": (3, 2)}),
    (
        ops.BatchNormInferenceBackward,
        {"dy": SIX, "eps": 1.0, "running_var": [1.0, 2.0]},
        {"dx": (3, 2)},
    ),
    (
        ops.BatchNormBackward,
        {"x": SIX, "dy": SIX, "mean": [1.0, 2.0], "inverse_std": [1.0, 2.0], "eps": 1.0},
        {"dx": (3, 2), "dw": (2,), "db": (2,)},
    ),
]


@pytest.mark.parametrize(("kind", "fields", "outputs"), WRONG)
def test_one_number_for_each_channel(kind, fields, outputs):
    compute(kind, outputs, **fields)
    lists = [name for name, value in fields.items() if isinstance(value, list)]
    names = {*lists, "weight", *(() if kind is ops.BatchNormInferenceBackward else ("bias",))}
    for name in names:
        with pytest.raises(ShapeError, match="shapes do not fit"):
            compute(kind, outputs, **(fields | {name: [1.0, 2.0, 3.0]}))
    for name, shape in outputs.items():
        with pytest.raises(ShapeError, match="shapes d"):
            compute(kind, outputs | {name: (shape[0] + 1, *shape[1:])}, **fields)


def test_how_many_operations_they_are():
    x, y, other = (Tensor(name, (3, 2), "float32", "activation") for name in "xyz")
    rows = [Tensor(name, (2,), "float32", "activation") for name in "abcd"]
    norm = ops.BatchNorm(x=x, y=y, mean=rows[0], inverse_std=rows[1], var=rows[2], **NUMBERS)
    assert (norm.flops(), replace(norm, activation="relu").flops()) == (42, 48)
    infer = ops.BatchNormInference(x=x, y=y, running_mean=rows[0], running_var=rows[1], eps=0.0)
    assert (infer.flops(), replace(infer, activation="relu").flops()) == (12, 18)
    ends: dict[str, Any] = {"mean": rows[0], "inverse_std": rows[1], "eps": 0.0}
    back = ops.BatchNormBackward(x=x, dy=y, dx=other, **ends)
    assert back.flops() == 66
    assert replace(back, activation="relu", y=y).flops() == 72
    assert replace(back, activation="gelu").flops() == 84
    pictures = [Tensor(name, (1, 2, 3, 4), "float32", "activation") for name in "wxyz"]
    numbers = {"size": 3, "alpha": 1.0, "beta": 1.0, "k": 1.0}
    for kind, each in ((ops.Lrn, 7), (ops.DivisiveNorm, 13)):
        assert kind(x=pictures[0], y=pictures[1], **numbers).flops() == each * 24
    for kind, each in ((ops.LrnBackward, 14), (ops.DivisiveNormBackward, 26)):
        names = zip(("x", "y", "dy", "dx"), pictures, strict=True)
        assert kind(**dict(names), **numbers).flops() == each * 24


def test_dropout_backward():
    mask = np.array([[1, 0, 1]], np.uint8)
    dx = compute(ops.DropoutBackward, {"dx": (1, 3)}, dy=[[1.0, 2.0, -3.0]], mask=mask, scale=4.0)
    check(dx["dx"], [[4, 0, -12]])


def test_batch_norm_inference():
    state = {"running_mean": [1.0, 2.0], "running_var": [3.0, 0.0]}
    fields: dict[str, Any] = {"x": X, "weight": [2.0, 1.0], "bias": [0.0, 1.0], "eps": 1.0}
    y = compute(ops.BatchNormInference, {"y": (2, 2)}, **fields, **state)["y"]
    check(y, [[0, 4], [2, 0]])
    y = compute(ops.BatchNormInference, {"y": (2, 2)}, x=X, eps=1.0, activation="relu", **state)[
        "y"
    ]
    check(y, [[0, 3], [1, 0]])


def test_batch_norm_inference_backward():
    fields: dict[str, Any] = {"dy": [[3.0, -4.0]], "running_var": [3.0, 0.0], "eps": 1.0}
    dx = compute(ops.BatchNormInferenceBackward, {"dx": (1, 2)}, weight=[2.0, 5.0], **fields)["dx"]
    check(dx, [[3, -20]])
    check(compute(ops.BatchNormInferenceBackward, {"dx": (1, 2)}, **fields)["dx"], [[1.5, -4]])


def test_batch_norm_backward():
    """Of two samples dx is 0 but for eps: moving one moves mean and deviation along."""
    statistics: dict[str, Any] = {"mean": [2.0, 3.0], "inverse_std": [1.0, 0.5], "eps": 0.0}
    out: dict[str, Any] = {"dx": (2, 2), "dw": (2,), "db": (2,)}
    got = compute(ops.BatchNormBackward, out, x=X, dy=[[1.0, 2.0], [4.0, -3.0]], **statistics)
    check(got["dx"], [[0, 0], [0, 0]])
    check(got["dw"], [3, 5])
    check(got["db"], [5, -1])
    # With ReLU only what forward let through counts.
    y = [[0.0, 1.0], [1.0, 0.0]]
    dy = [[1.0, 2.0], [4.0, -3.0]]
    got = compute(ops.BatchNormBackward, out, x=X, dy=dy, y=y, activation="relu", **statistics)
    check(got["db"], [4, 2])
    check(got["dw"], [4, 2])


def test_one_value_a_channel_has_no_variance():
    out: dict[str, Any] = {"y": (1, 2), "mean": (2,), "inverse_std": (2,)}
    with pytest.raises(ShapeError, match="shapes do not fit"):
        compute(ops.BatchNorm, out, x=[[1.0, 2.0]], **NUMBERS, **STATE)


def test_lrn():
    """Three channels of one pixel: the ends see two channels, the divisor stays 3."""
    x = [[[[1.0]], [[2.0]], [[3.0]]]]
    y = compute(ops.Lrn, {"y": (1, 3, 1, 1)}, x=x, size=3, alpha=6.0, beta=1.0, k=1.0)["y"]
    check(y.reshape(-1), [1 / 11, 2 / 29, 3 / 27])


def test_divisive_norm():
    """A corner sees four pixels, the middle nine; the divisor is 9 for both."""
    numbers = {"size": 3, "alpha": 9.0, "beta": 0.5, "k": 2.0}
    y = compute(ops.DivisiveNorm, {"y": (1, 1, 3, 3)}, x=NINE, **numbers)["y"][0, 0]
    check(y[0, 0], 1 / sqrt(2 + 1 + 4 + 16 + 25))
    check(y[1, 1], 5 / sqrt(2 + 285))
    check(y[1, 2], 6 / sqrt(2 + 4 + 9 + 25 + 36 + 64 + 81))


def dropped(
    step: int, threshold: int, shape: tuple[int, ...], parts: int = 1
) -> tuple[Array, Array]:
    graph = Graph("hand", 1)
    x = graph.tensor("x", shape, role="input")
    y, mask = graph.tensor("y", shape), graph.tensor("mask", shape, "uint8")
    counter = graph.tensor("step", (1,), "int64", "state")
    key = random.key(7, "dropout", "d")
    rest: dict[str, Any] = {"key": key, "threshold": threshold, "scale": 2.0, "parts": parts}
    graph.add(ops.Dropout(x=x, step=counter, y=y, mask=mask, **rest))
    executable = ReferenceBackend(1).compile({"hand": graph})
    executable.write(x, np.full(shape, 3.0, np.float32))
    executable.write(counter, np.array([step], np.int64))
    executable.run("hand")
    return executable.read(y), executable.read(mask)


def test_dropout_reads_the_words_of_seed_layer_and_step():
    threshold = 1 << 30
    y, mask = dropped(5, threshold, (2, 3, 1, 3))
    words = random.words(random.key(7, "dropout", "d"), 5, 0, 5).reshape(-1)[:18]
    np.testing.assert_array_equal(mask.reshape(-1), words >= threshold)
    np.testing.assert_array_equal(y, 6.0 * mask)


@pytest.mark.parametrize("shape", [(2, 3), (2, 8)])
def test_the_parts_of_a_batch_have_the_masks_of_the_whole(shape):
    whole = dropped(5, 1 << 31, (3 * shape[0], shape[1]))[1]
    parts = [dropped(15 + part, 1 << 31, shape, parts=3)[1] for part in range(3)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_dropout_drops_the_share_that_the_threshold_says():
    masks = np.array([dropped(step, round(0.2 * 2**32), (100, 100))[1] for step in range(5)])
    # 50000 fair draws: four standard deviations are 0.0072.
    assert abs(masks.mean() - 0.8) < 0.0072
    assert not np.array_equal(masks[0], masks[1])
