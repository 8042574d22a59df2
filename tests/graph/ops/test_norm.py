"""Normalisation and dropout, checked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common import random
from dnnstack.common.errors import ShapeError
from dnnstack.graph import ops
from dnnstack.graph.graph import Graph, Op

from ...support.by_hand import compute

# Two samples of two channels: means 2 and 3, variances 1 and 4 of the samples, 2 and 8 unbiased.
X = [[1.0, 5.0], [3.0, 1.0]]
NUMBERS = {"momentum": 0.25, "eps": 0.0}
STATE = {"running_mean": [0.0, 1.0], "running_var": [1.0, 2.0]}
OUT: dict[str, Any] = {"y": (2, 2), "mean": (2,), "inverse_std": (2,)}


# Three samples of two channels, so that no number of samples is one of channels.
SIX = np.array([[1.0, 5.0], [3.0, 1.0], [8.0, 3.0]])


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


def test_one_value_a_channel_has_no_variance():
    out: dict[str, Any] = {"y": (1, 2), "mean": (2,), "inverse_std": (2,)}
    with pytest.raises(ShapeError, match="shapes do not fit"):
        compute(ops.BatchNorm, out, x=[[1.0, 2.0]], **NUMBERS, **STATE)


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
