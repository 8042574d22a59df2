"""Kernels in CUDA, of skeletons and of the document, computed on the processor."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from dnnstack.backends.own_code import Guarded
from dnnstack.lab.checking import wrong
from dnnstack.lab.operations import OPERATIONS, LabError
from dnnstack.lab.program import Ran
from dnnstack.lab.skeleton import skeleton, write

from ..support import emulated_build

pytestmark = pytest.mark.skipif(emulated_build.COMPILER is None, reason="there is no g++")


def emulated(name: str, source: str, folder: Path) -> Guarded:
    """A kernel in CUDA as the library of one in C."""
    operation = OPERATIONS[name]
    (folder / "own.cu").write_text(source, "utf-8")
    arrays = [
        f"({'const ' * a.is_input}{a.dtype}*)a[{i}]" for i, a in enumerate(operation.arguments)
    ]
    numbers = [f"n[{i}]" for i in range(len(operation.numbers))]
    defines = {
        "BFLOAT": 0,
        "PLAN(launch, n)": f"{name}_launch({', '.join(['launch', *numbers])})",
        "KERNEL_CALL(a, n)": f"{name}({', '.join([*arrays, *numbers])})",
    }
    emulated_build.library("own_kernel", folder, defines)
    return Guarded(folder / "own_kernel.so")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_kernel_in_cuda_is_right(name, tmp_path):
    is_right(name, skeleton(OPERATIONS[name], "cuda"), tmp_path)


def is_right(name: str, source: str, folder: Path) -> None:
    operation, rng = OPERATIONS[name], np.random.default_rng(1)
    kernel = emulated(name, source, folder)
    for _ in range(6):
        case = operation.case(operation.draw(rng, 4), rng)
        arrays = {key: array.copy() for key, array in case.arrays.items()}
        _, took = kernel.call(arrays, case.numbers)
        assert took
        assert wrong(operation, case, [Ran(0.0, True, arrays)]) == ""


def test_a_file_is_written_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write("matmul", "cuda", overwrite=False)
    assert path == Path("matmul.cu")
    assert "matmul_launch" in path.read_text("utf-8")
    path.write_text("mine", "utf-8")
    with pytest.raises(LabError, match=re.escape("matmul.cu exists")):
        write("matmul", "cuda", overwrite=False)
    assert path.read_text("utf-8") == "mine"
    write("matmul", "cuda", overwrite=True)
    assert path.read_text("utf-8") != "mine"
    with pytest.raises(LabError, match=r"'matmull' is no operation .*did you mean 'matmul'"):
        write("matmull", "c", overwrite=False)
