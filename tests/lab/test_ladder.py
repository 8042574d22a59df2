"""The ladder of docs/lab.md: every rung is right."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest
from dnnstack.lab.checking import check
from dnnstack.lab.program import opened

from ..support import emulated_build
from ..support.training_fixtures import cuda
from .test_skeleton import is_right

__all__ = ["cuda"]

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "lab.md").read_text("utf-8")
RUNGS = {
    title: textwrap.dedent("\n".join(line for line in text.splitlines() if line[:1] in ("", " ")))
    for title, text in re.findall(r"### (.*)\n([^\0]*?)(?=\n### |\Z)", PAGE)
}


def _named(language: str) -> list[str]:
    return [title for title in RUNGS if f"in {language}," in title]


def test_there_are_rungs():
    assert (len(_named("C")), len(_named("CUDA"))) == (4, 4)


@pytest.mark.parametrize("title", _named("C"))
def test_a_rung_in_c(title, tmp_path):
    path = tmp_path / f"{title.split()[0]}.c"
    path.write_text(RUNGS[title], "utf-8")
    with opened(path, 60) as kernel:
        assert check(kernel) == (12, 12)


@pytest.mark.skipif(emulated_build.COMPILER is None, reason="there is no g++")
@pytest.mark.parametrize("title", [title for title in _named("CUDA") if "tensor" not in title])
def test_a_rung_in_cuda_on_the_processor(title, tmp_path):
    is_right(title.split()[0], RUNGS[title], tmp_path)


@pytest.mark.cuda
@pytest.mark.parametrize("title", _named("CUDA"))
def test_a_rung_in_cuda(title, cuda, tmp_path):
    path = tmp_path / f"{title.split()[0]}.cu"
    path.write_text(RUNGS[title], "utf-8")
    with opened(path, 60) as kernel:
        drawn, taken = check(kernel)
    assert drawn == taken
