"""A kernel trains a network in the place of a library's call, and is timed beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.reference.kernels import KERNELS
from dnnstack.lab.in_place import in_place
from dnnstack.lab.operations import OPERATIONS, LabError
from dnnstack.lab.program import opened
from dnnstack.lab.running import COLUMNS, graded, report, timed
from dnnstack.reports.explain import explain

from ..support.training_fixtures import _own_cache, backend, cuda, onednn, reference, tiny
from ..support.trainings import go

__all__ = ["_own_cache", "backend", "cuda", "onednn", "reference", "tiny"]
LAYERS = (
    "layers=[{conv2d: {filters: 4, kernel_size: 5, padding: same}}, relu, max_pool2d, "
    "{conv2d: {filters: 6, kernel_size: 3, stride: 2}}, relu, flatten, {dense: {units: 20}}, "
    "relu, {dense: {units: 10}}, softmax]"
)
NET = (LAYERS, "run.fusion=false", "run.tune=false", "train={max_steps: 4, log_every: 2}")
# How many operations of a step each kernel computes.
COUNTS = {"conv2d": 2, "conv2d_backward_data": 1, "conv2d_backward_filter": 2, "matmul": 6}
COUNTS |= {"max_pool2d": 1, "relu": 3, "loss": 1, "update": 1}


def computed_by(config, backend, name):
    """The operations of a step that a file of this name computes."""
    found = explain(config, Path("tiny.yaml"), backend, False, lambda text: None)
    return [o.op for o in found.operations if any(c.bound.function == name for c in o.calls)]


@pytest.mark.parametrize(
    ("name", "momentum"), [*((name, 0.0) for name in OPERATIONS), ("update", 0.9)]
)
def test_a_training_is_the_same(name, momentum, backend, tiny, written):
    decay = f"optimizer={{type: sgd, lr: 0.05, momentum: {momentum}, weight_decay: 0.01}}"
    trains_alike(tiny(*NET, decay), backend, written(name, "c"))


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["conv2d", "matmul", "update"])
def test_a_training_is_the_same_on_a_gpu(name, cuda, tiny, written):
    trains_alike(tiny(*NET, "run.precision=fp32"), cuda, written(name, "cuda"))


def trains_alike(config, backend, path):
    name = path.stem
    plain, own = go(config, backend), KERNELS[OPERATIONS[name].kind]
    with opened(path, 60) as kernel, in_place(kernel):
        ops = computed_by(config, backend, path.name)
        found = go(config, backend)
    assert len(ops) == COUNTS[name]
    assert KERNELS[OPERATIONS[name].kind] is own
    assert computed_by(config, backend, path.name) == []
    for key, value in plain.arrays.items():
        np.testing.assert_allclose(found.arrays[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


def test_what_is_wrong_in_the_sizes_of_a_training_does_not_train(onednn, tiny, written):
    path = written("relu", "c", "return 0;", "if (SIZE > 5000) y[4] = 7; return 0;")
    with opened(path, 60) as kernel, in_place(kernel):
        assert report(kernel).taken == 12
        with pytest.raises(LabError, match=r"relu is wrong: y\[4\] .* is 7, .*; sizes: SIZE=50176"):
            go(tiny(*NET), onednn)


def test_what_it_does_not_take_is_the_librarys(onednn, tiny, written):
    path = written("conv2d", "c", "{", "{\n    if (KH == 5) return 1;")
    with opened(path, 60) as kernel, in_place(kernel):
        (op,) = computed_by(tiny(*NET), onednn, "conv2d.c")
    assert op.window.kernel == (3, 3)


@pytest.fixture
def explanation(onednn, tiny):
    return explain(tiny(*NET), Path("tiny.yaml"), onednn, True, lambda text: None)


def test_times_are_beside_the_librarys(explanation, written):
    path = written("conv2d", "c", "{", "{\n    if (KH == 3) return 1;")
    with opened(path, 60) as kernel:
        found = replace(report(kernel), timed=timed(kernel, explanation))
    (row,) = found.to_json()["timed"]
    assert (row["layer"], row["phase"]) == ("conv2d_1", "forward")
    assert row["sizes"] == [(16, 1, 28, 28), (4, 1, 5, 5), (16, 4, 28, 28)]
    assert row["seconds"] == pytest.approx(row["ratio"] * row["library_seconds"])
    assert row["flops_per_second"] * row["seconds"] == pytest.approx(2 * 16 * 4 * 28 * 28 * 25)
    assert row["bytes_per_second"] * row["seconds"] == pytest.approx(4 * (16 * 784 * 5 + 100))
    first, head, line = found.as_text().splitlines()
    assert f"{path}: conv2d is right in {found.taken} of 12 drawn sizes, and does not" in first
    assert "16x1x28x28, 4x1x5x5 -> 16x4x28x28" in line
    assert head.split()[:3] == ["layer", "phase", "sizes"]


def test_a_class_is_graded(explanation, written, tmp_path):
    paths = [written("relu", "c"), written("loss", "c", "= total /", "= 7 + total /")]
    (tmp_path / "notes.txt").touch()
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in graded(tmp_path, 60, explanation)]
    wrong, right = rows
    assert [row["file"] for row in rows] == sorted(path.name for path in paths)
    assert (wrong["right"], wrong["ratio"], wrong["seconds"]) == ("no", "", "")
    assert wrong["fault"].startswith("loss is wrong: loss[0] (element 0)")
    assert (right["operation"], right["right"], right["fault"]) == ("relu", "yes", "")
    with opened(paths[0], 60) as kernel:
        rows = timed(kernel, explanation)
    library = sum(each.operation.seconds for each in rows)
    assert float(right["seconds"]) == pytest.approx(
        float(right["ratio"]) * library, rel=0.2, abs=2e-6
    )
    with pytest.raises(LabError, match=r"has no file that ends in \.c, \.cu, \.py"):
        list(graded(tmp_path / "none", 60, explanation))
