"""Gathering, clipping and the step counter, checked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.backends.base import Array
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.common.errors import DatasetError, ShapeError
from dnnstack.graph.graph import Graph
from dnnstack.graph.ops import ClipByNorm, GatherAugmented, GatherBatch, GlobalNorm

from ...support.by_hand import TARGET, check, compute
from ...support.opened import opened


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


@pytest.mark.parametrize("name", ["reference", "onednn"])
@pytest.mark.parametrize("scaled", [False, True])
def test_gathering_floats_and_rows_of_numbers(name, scaled):
    """Bit for bit where nothing scales them; a masked sample's target is the word -1."""
    images = np.array([[-0.0, 1e-40], [np.inf, 3.7], [0.1, -2.5]], np.float32)
    labels = np.array([[0.5, -0.0], [-7.0, 1e30], [3.0, 4.0]], np.float32)
    given = {"images": (images.reshape(3, 2, 1, 1), "data"), "labels": (labels, "data")}
    given["order"] = np.array([1, -1, 0, 2], TARGET), "data"
    given["step"] = np.array([0]), "state"
    graph, values = Graph("hand", 1), {}
    for key, (array, role) in given.items():
        values[key] = graph.tensor(key, array.shape, str(array.dtype), role)
    x, target = graph.tensor("x", (4, 2, 1, 1)), graph.tensor("target", (4, 2))
    graph.results.update(x=x, target=target)
    scale = (2.0, 2.0) if scaled else (1.0, 1.0)
    graph.add(GatherBatch(**values, x=x, target=target, scale=scale, shift=(0.0, 0.0)))
    executable = opened(name).compile({"hand": graph})
    for key, (array, _) in given.items():
        executable.write(values[key], array)
    executable.run("hand")
    rows = [1, -1, 0, 2]
    found = executable.read(x).reshape(4, 2)
    if scaled:
        np.testing.assert_array_equal(found, [images[r] * 2 if r >= 0 else [0, 0] for r in rows])
    else:
        wanted = np.where(np.array(rows)[:, None] < 0, np.float32(0), images[rows])
        np.testing.assert_array_equal(found.view(np.int32), wanted.view(np.int32))
    wanted = labels[rows].view(np.int32)
    wanted[1] = -1
    np.testing.assert_array_equal(executable.read(target).view(np.int32), wanted)


WRONG = {
    "labels of bytes": {"labels": ((3, 2), "uint8"), "target": ((2, 2), "uint8")},
    "wide labels of integers": {"labels": ((3, 2), "int32"), "target": ((2, 2), "int32")},
    "narrow labels of floats": {"labels": ((3,), "float32"), "target": ((2,), "float32")},
    "another target": {"labels": ((3, 2), "float32")},
    "fewer words": {"labels": ((3, 2), "float32"), "target": ((2, 1), "float32")},
    "fewer samples": {"target": ((1,), "int32")},
    "images of integers": {"images": ((3, 1, 2, 2), "int32")},
}


def gathers(kind, changed, **rest):
    shapes = {
        "images": ((3, 1, 2, 2), "uint8"),
        "labels": ((3,), "int32"),
        "order": ((4,), "int32"),
        "step": ((1,), "int64"),
        "x": ((2, 1, 2, 2), "float32"),
        "target": ((2,), "int32"),
        **changed,
    }
    graph = Graph("hand", 1)
    tensors = {name: graph.tensor(name, *shape) for name, shape in shapes.items()}
    op = kind(**tensors, scale=(1.0,), shift=(0.0,), **rest)
    op.check()
    return op


@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_gathering_refuses(wrong):
    with pytest.raises(ShapeError, match="shapes do not fit"):
        gathers(GatherBatch, WRONG[wrong])


def test_floats_are_not_augmented():
    floats = {"images": ((3, 1, 2, 2), "float32")}
    with pytest.raises(ShapeError, match=r"'images' holds float32, .* remove the augmentation"):
        gathers(GatherAugmented, floats, augment=(), keys=(), fill=(0,))
    gathers(GatherAugmented, {}, augment=(), keys=(), fill=(0,))


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
