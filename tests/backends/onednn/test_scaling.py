"""Bytes become scaled numbers: with the bits of one product, in as few passes as can be."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import GatherBatch


@pytest.mark.parametrize(
    ("shift", "functions"),
    [
        (0.0, ["take", "dnnl_reorder", "where"]),
        (-0.0, ["take", "dnnl_reorder", "where"]),
        (-0.5, ["take", "dnnl_reorder", "dnnl_eltwise_forward", "where"]),
    ],
)
@pytest.mark.parametrize("scale", [1 / 255, 1 / (255 * 0.3081), 0.1])
def test_bytes_are_scaled(
    onednn: Backend, scale: float, shift: float, functions: list[str]
) -> None:
    images = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    graph = Graph("given", 4)
    tensors = {
        "images": graph.tensor("images", images.shape, "uint8", "data"),
        "labels": graph.tensor("labels", (4,), "int32", "data"),
        "order": graph.tensor("order", (4,), "int32", "data"),
        "step": graph.tensor("step", (1,), "int64", "state"),
        "x": graph.tensor("x", images.shape),
        "target": graph.tensor("target", (4,), "int32"),
    }
    graph.add(GatherBatch(**tensors, scale=(scale,), shift=(shift,)))
    graph.results.update(tensors)
    executable = onednn.compile({"given": graph})
    assert [call.function for call in executable.calls("given")] == functions
    executable.write(tensors["images"], images)
    executable.write(tensors["labels"], np.zeros(4, np.int32))
    executable.write(tensors["order"], np.array([2, 0, -1, 3], np.int32))
    executable.write(tensors["step"], np.zeros(1, np.int64))
    executable.run("given")
    found = executable.read(tensors["x"])
    # A product and a sum that are rounded once, as by a fused instruction.
    wanted = images[[2, 0, 0, 3]] * np.float64(np.float32(scale)) + np.float64(shift)
    wanted = wanted.astype(np.float32)
    wanted[2] = 0.0
    np.testing.assert_array_equal(found, wanted)
    executable.close()
