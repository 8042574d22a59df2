"""Kernels in files: skeletons, whole or changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.lab.operations import OPERATIONS
from dnnstack.lab.skeleton import SUFFIXES, skeleton

Written = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write the skeleton of an operation with a part of it replaced; its path."""

    def write(name: str, language: str, old: str = "", new: str = "") -> Path:
        text = skeleton(OPERATIONS[name], language)
        assert old in text
        path = tmp_path / f"{name}{SUFFIXES[language]}"
        path.write_text(text.replace(old, new, 1), "utf-8")
        return path

    return write
