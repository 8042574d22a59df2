"""Gathering, clipping and the step counter, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import DatasetError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import ClipByNorm, GatherBatch, GlobalNorm

from ...support.by_hand import TARGET, check, compute


def gather(order: list[int], step: int) -> dict[str, Array]:
    images = np.arange(12, dtype=np.uint8).reshape(3, 2, 1, 2)
    return compute(
        GatherBatch,
        {"x": (2, 2, 1, 2), "target": (2,)},
        images=images,
        labels=np.array([7, 8, 9], TARGET),
        order=np.array(order, TARGET),
        step=np.array([step]),
        scale=(0.5, 2.0),
        shift=(1.0, -1.0),
    )


@pytest.mark.parametrize("step", [1, 3, 5])
def test_gather_batch(step):
    """Two steps an epoch: the third takes the samples of the first again."""
    got = gather([0, 1, 2, 0], step)
    check(got["x"], [[[[5, 5.5]], [[19, 21]]], [[[1, 1.5]], [[3, 5]]]])
    np.testing.assert_array_equal(got["target"], [9, 7])
    np.testing.assert_array_equal(gather([0, 1, 2, 0], step + 1)["target"], [7, 8])


def test_gather_batch_of_a_missing_sample():
    got = gather([-1, 1], step=0)
    check(got["x"], [[[[0, 0]], [[0, 0]]], [[[3, 3.5]], [[11, 13]]]])
    np.testing.assert_array_equal(got["target"], [-1, 8])


@pytest.mark.parametrize("row", [3, -2])
def test_gather_batch_out_of_range(row):
    with pytest.raises(DatasetError, match="at step 0; 'images' has 3 pictures, 'labels' 3 labels"):
        gather([0, row], step=0)


def test_clipping_gradients_of_zero():
    graph = Graph("hand", 1)
    given = (graph.tensor("a", (2,), role="input"),)
    norm = graph.tensor("norm", (1,))
    graph.add(GlobalNorm(gradients=given, norm=norm))
    graph.add(ClipByNorm(gradients=given, norm=norm, max_norm=2.0))
    executable = ReferenceBackend(1).compile({"hand": graph})
    executable.write(given[0], np.zeros(2, np.float32))
    executable.run("hand")
    check(executable.read(given[0]), [0, 0])
