"""Kernels that are right, and kernels that fail in every way: each fault is one line."""

from __future__ import annotations

import re

import numpy as np
import pytest
from dnnstack.lab import program
from dnnstack.lab.checking import check
from dnnstack.lab.operations import OPERATIONS, LabError
from dnnstack.lab.program import opened

from ..support.stored import cases
from ..support.training_fixtures import cuda

__all__ = ["cuda"]


@pytest.mark.parametrize("language", ["c", "python"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_skeleton_is_right(name, language, written):
    with opened(written(name, language), 60) as kernel:
        assert check(kernel) == (12, 12)


@pytest.mark.cuda
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_skeleton_is_right_on_a_gpu(name, cuda, written):
    with opened(written(name, "cuda"), 120) as kernel:
        assert check(kernel) == (12, 12)


@pytest.mark.cuda
@pytest.mark.parametrize("case", cases(__file__, "on_a_gpu"), ids=lambda case: case["name"])
def test_a_fault_on_a_gpu_is_one_line(case, cuda, written):
    has_one_line({"operation": "relu", "language": "cuda", **case}, written, 20)


@pytest.mark.parametrize("case", cases(__file__, "faults"), ids=lambda case: case["name"])
def test_a_fault_is_one_line(case, written):
    has_one_line(case, written, 2)


def has_one_line(case, written, seconds):
    path = written(case["operation"], case["language"], case["old"], case["new"])
    if "before" in case:
        path.write_text(f"{case['before']}\n{path.read_text('utf-8')}", "utf-8")
    limit = seconds if "more than" in case["told"] else 60
    with pytest.raises(LabError) as caught, opened(path, limit) as kernel:
        check(kernel)
    text = str(caught.value)
    assert re.search(case["told"], text), text
    assert text.startswith(f"{path}: ")
    assert "\n" not in text


@pytest.mark.parametrize("name", ["lab.c", "numpy.py", "json.py"])
def test_a_file_may_have_any_name(name, written):
    path = written("relu", "c" if name[-1] == "c" else "python")
    with opened(path.rename(path.with_name(name)), 60) as kernel:
        assert check(kernel) == (12, 12)


def test_what_it_does_not_take_is_not_checked(written):
    wrong = "{\n    if (SIZE > 100) return 1;"
    with opened(written("relu", "c", "{", wrong), 60) as kernel:
        drawn, taken = check(kernel)
    assert 0 < taken < drawn


def test_each_array_ends_at_a_guard_and_begins_at_one(written):
    """What is read in front shows in one run of two, what is read behind in the other."""
    for at, told in (("-1", "-1"), ("SIZE", r"(\d+)")):
        with opened(written("relu", "c", "return 0;", f"return x[{at}] > 9;"), 60) as kernel:
            rng = np.random.default_rng(1)
            case = kernel.operation.case(kernel.operation.draw(rng, 4), rng)
            runs, fault = kernel.tried([case], 2)
        assert re.fullmatch(rf"reads x\[{told}\] of {case.arrays['x'].size}", fault)
        # The first run has its end at a guard.
        assert len(runs[0]) == (at == "-1")


@pytest.mark.parametrize("case", cases(__file__, "refused"), ids=lambda case: case["file"])
def test_what_is_no_kernel(case, tmp_path):
    path = tmp_path / case["file"]
    if "text" in case:
        path.parent.mkdir(exist_ok=True)
        path.write_text(case["text"], "utf-8")
        (path.parent / case.get("beside", "other")).touch()
    with pytest.raises(LabError, match=case["told"]), opened(path, 1):
        pass


def test_there_may_be_no_compiler_and_a_slow_one(written, monkeypatch):
    path = written("relu", "c")
    monkeypatch.setattr(program, "_COMPILE_SECONDS", 1e-3)
    with pytest.raises(LabError, match="does not compile in"), opened(path, 1):
        pass
    monkeypatch.setenv("PATH", "")
    with pytest.raises(LabError, match="install gcc or clang"), opened(path, 1):
        pass
