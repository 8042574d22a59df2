"""Bytes become scaled numbers: with the bits of one product, in as few passes as can be."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Backend, Executable
from dnnstack.backends.read_ahead import ReadAhead
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import GatherBatch, MatMul, Reshape
from numpy.typing import NDArray

ORDER = [2, 0, -1, 3]


@pytest.mark.parametrize(
    ("shift", "functions"),
    [
        (0.0, ["take", "dnnl_reorder", "where"]),
        (-0.0, ["take", "dnnl_reorder", "where"]),
        (-0.5, ["take", "dnnl_reorder", "dnnl_eltwise_forward", "where"]),
    ],
)
@pytest.mark.parametrize("scale", [1 / 255, 1 / (255 * 0.3081), 0.1])
def test_bytes_are_scaled(onednn, scale, shift, functions):
    images = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    graph, executable = _compiled(onednn, images, scale, shift)
    assert [call.function for call in executable.calls("given")] == functions
    found = _scaled(executable, graph, images)
    np.testing.assert_array_equal(found, _expected(images, scale, shift))
    executable.close()


def _compiled(
    onednn: Backend,
    images: NDArray[np.uint8],
    scale: float,
    shift: float,
    *,
    dense: bool = False,
    training: bool = False,
) -> tuple[Graph, Executable]:
    graph = Graph("given", 4, training=training)
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
    if dense:
        inputs = images[0].size
        flat, y = graph.tensor("flat", (4, inputs)), graph.tensor("y", (4, 3))
        weight = graph.tensor("weight", (3, inputs), role="parameter")
        graph.add(Reshape(x=tensors["x"], y=flat))
        graph.add(MatMul(a=flat, b=weight, c=y, transpose_b=True))
        graph.results["y"] = y
    return graph, onednn.compile({"given": graph})


def _scaled(executable: Executable, graph: Graph, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    executable.write(graph["images"], images)
    executable.write(graph["labels"], np.zeros(4, np.int32))
    executable.write(graph["order"], np.array(ORDER, np.int32))
    executable.write(graph["step"], np.zeros(1, np.int64))
    executable.run("given")
    return executable.read(graph["x"])


def _expected(images: NDArray[np.uint8], scale: float, shift: float) -> NDArray[np.float32]:
    # A product and a sum that are rounded once, as by a fused instruction.
    exact = images[np.maximum(ORDER, 0)] * np.float64(np.float32(scale)) + np.float64(shift)
    wanted = exact.astype(np.float32)
    wanted[np.array(ORDER) < 0] = 0.0
    return wanted


def test_rows_of_a_file_are_asked_for_where_they_lie(onednn, tmp_path, monkeypatch):
    asked: list[tuple[object, ...]] = []
    monkeypatch.setattr(ReadAhead, "__call__", lambda self, *given: asked.append(given))
    images = np.arange(256, dtype=np.uint8).reshape(4, 1, 8, 8)
    np.save(tmp_path / "images.npy", images)
    file = np.load(tmp_path / "images.npy", mmap_mode="r")
    graph, executable = _compiled(onednn, images, 0.1, 0.0)
    order = np.array([*ORDER, 3, 1, 0, 2], np.int32)
    for name, value in {"images": file, "labels": np.zeros(4, np.int32), "order": order}.items():
        executable.write(graph[name], value)
    for step in (0, 1, 2):
        executable.write(graph["step"], np.array([step], np.int64))
        executable.run("given")
        call = asked.pop()
        assert (call[0] is file, call[1] is order, *call[2:]) == (True, True, 4 * (step % 2), 4)
        rows = order[4 * (step % 2) :][:4]
        wanted = np.where((rows < 0)[:, None, None, None], 0, images[rows] * np.float32(0.1))
        np.testing.assert_array_equal(executable.read(graph["x"]), wanted)
    # A batch that is run once has nothing behind it.
    _scaled(executable, graph, images)
    assert asked == []
    executable.close()
