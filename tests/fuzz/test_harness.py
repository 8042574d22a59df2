"""What the fuzzing must notice, it does."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.common.errors import DatasetError
from hypothesis import strategies as st

from . import harness
from .harness import LONGEST, MEGABYTE, Endless, Target, examine

Read = Callable[[bytes, Path], object]


def run(read: Read, folder: Path) -> bool:
    inside = folder / "inside"
    inside.mkdir()
    return examine(Target("x", read, st.binary(), lambda: [b""]), b"abc", inside)


def refuse(said: str) -> Read:
    def read(data: bytes, folder: Path) -> None:
        raise DatasetError(*said.split("\n"))

    return read


def test_what_is_allowed(tmp_path):
    def read(data: bytes, folder: Path) -> None:
        (folder / "a").write_bytes(data)
        os.replace(folder / "a", folder / "b")
        Path("b").unlink()
        bytearray(64 * MEGABYTE)

    assert run(read, tmp_path)


def test_a_short_refusal(tmp_path):
    assert not run(refuse("x: is damaged"), tmp_path)


@pytest.mark.parametrize("said", ["", "x" * (LONGEST + 1), "x\n" * 100])
def test_a_refusal_that_is_not_short(tmp_path, said):
    with pytest.raises(AssertionError, match=r"without a word|characters|lines"):
        run(refuse(said), tmp_path)


def test_another_error(tmp_path):
    with pytest.raises(ZeroDivisionError):
        run(lambda data, folder: 1 // 0, tmp_path)


def test_memory(tmp_path):
    def read(data: bytes, folder: Path) -> None:
        # More than an earlier test may have left free in the heap.
        for _ in range(200):
            kept.append(bytearray(64 * MEGABYTE))

    kept: list[bytearray] = []
    with pytest.raises(AssertionError, match="takes more than 134,217,728 bytes"):
        run(read, tmp_path)


def test_no_end(tmp_path, monkeypatch):
    def read(data: bytes, folder: Path) -> None:
        while True:
            pass

    monkeypatch.setattr(harness, "SECONDS", 0.1)
    with pytest.raises(Endless):
        run(read, tmp_path)


OUTSIDE: dict[str, Read] = {
    "read": lambda data, folder: (folder.parent / "precious").read_bytes(),
    "written": lambda data, folder: (folder.parent / "precious").write_bytes(data),
    "made": lambda data, folder: (folder.parent / "new").mkdir(),
    "removed": lambda data, folder: os.remove(folder.parent / "precious"),
    "moved in": lambda data, folder: os.rename(folder.parent / "precious", folder / "a"),
    "by a relative path": lambda data, folder: open("../precious", "ab").close(),
    "process": lambda data, folder: subprocess.run(["true"], check=False),
    "pickle": lambda data, folder: pickle.loads(pickle.dumps(os.getpid)),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_it_must_leave_alone(tmp_path, what):
    (tmp_path / "precious").write_bytes(b"old")
    with pytest.raises(AssertionError, match=r"open|os\.|subprocess|pickle"):
        run(OUTSIDE[what], tmp_path)
