"""A checkpoint counts or does not, whatever call of the protocol fails."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dnnstack.common import files
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats.store import (
    checkpoint_steps,
    newest_checkpoint,
    write_checkpoint,
)

from .....support.checkpoint_folders import taken


class _Faults:
    """Stands in for the module ``os``: the n-th of the calls that a save makes fails."""

    NAMES = ("open", "fdopen", "fsync", "replace", "close")

    def __init__(self, fail_at: int) -> None:
        self.left = fail_at
        self.failed = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self.NAMES:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self._count(name)
            result = real(*args, **kwargs)
            return self._file(result) if name == "fdopen" else result

        return call

    def _count(self, name: str) -> None:
        self.left -= 1
        if self.left == 0:
            self.failed = True
            raise OSError(28, "No space left on device", name)

    def _file(self, file: Any) -> Any:
        def write(data: Any) -> int:
            # Half of it arrives, as on a full disk.
            file.write(memoryview(data)[: len(data) // 2])
            self._count("write")
            return int(file.write(memoryview(data)[len(data) // 2 :]))

        def leave(*error: object) -> None:
            file.close()

        wrapped = SimpleNamespace(
            write=write, read=getattr(file, "read", None), flush=file.flush, fileno=file.fileno
        )
        return type(
            "File", (), {"__enter__": lambda self: wrapped, "__exit__": lambda self, *e: leave(*e)}
        )()


def test_the_last_checkpoint_survives_a_failure_of_any_call(folder, save, monkeypatch):
    save(1)
    failures = 0
    for n in range(1, 100):
        faults = _Faults(n)
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", faults)
            try:
                save(2, keep=1)
                committed = True
            except OSError:
                committed = False
        if not faults.failed:
            break
        failures += 1
        step, _ = taken(folder)
        # A failure that is only noticed after the commit may leave the new one.
        assert step == 2 if committed else step in (1, 2)
        if checkpoint_steps(folder) != [1]:
            assert taken(folder)[0] == 2
            for path in folder.iterdir():
                path.unlink()
            save(1)
    assert failures > 10
    assert taken(folder) == (2, [])


def test_a_failing_deletion_is_no_failure(folder, save, monkeypatch):
    save(1)

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.exists():
            raise PermissionError(13, "not allowed", str(self))
        raise FileNotFoundError(2, "missing", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        save(2, keep=1)
    assert taken(folder) == (2, [])


def test_the_same_step_is_replaced_without_a_moment_in_which_none_counts(
    folder, state, provenance, monkeypatch
):
    """What a rollback does: equal step, another state. Any call may be the last."""

    def put(factor: float) -> None:
        arrays = {"a": np.full(3, 3, np.float32)}
        changed = replace(state, step=3, best=None, rate_factor=factor)
        write_checkpoint(folder, arrays, changed, provenance, 3)

    put(1.0)
    failures, found = 0, set()
    for n in range(1, 200):
        faults = _Faults(n)
        with monkeypatch.context() as patch:
            patch.setattr(files, "os", faults)
            with contextlib.suppress(OSError):
                put(0.5)
        failures += faults.failed
        notices: list[str] = []
        factor = newest_checkpoint(folder, notices.append).state.rate_factor
        assert notices == []
        found.add(factor)
        if not faults.failed:
            assert factor == 0.5
            break
        # Whatever was left there, it can be replaced again.
        put(1.0)
        assert newest_checkpoint(folder).state.rate_factor == 1.0
    assert failures > 20
    assert found == {1.0, 0.5}
    assert "replaces" not in json.loads((folder / "step-3.json").read_text())


@pytest.mark.parametrize("damage", ["tensors", "manifest", "missing"])
def test_a_damaged_file_of_the_same_step_is_no_obstacle(folder, save, damage):
    path = save(2)
    if damage == "tensors":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif damage == "manifest":
        path.with_suffix(".json").write_text("{")
    else:
        path.unlink()
    save(2)
    assert taken(folder) == (2, [])


def test_a_manifest_that_announces_two_files_takes_no_third(folder, save):
    path = save(2)
    manifest = path.with_suffix(".json")
    table = json.loads(manifest.read_text())
    other = {"bytes": 5, "sha256": "0" * 64}
    manifest.write_text(json.dumps({**other, "step": 2, "replaces": table}))
    assert taken(folder) == (2, [])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="is damaged"):
        newest_checkpoint(folder)


def test_the_manifest_comes_last_and_goes_first(folder, save, monkeypatch):
    """A process that is killed between two calls leaves no manifest without its tensors."""
    save(1)
    calls: list[str] = []
    rename, unlink = os.replace, os.unlink

    def note_rename(source: str, target: str) -> None:
        calls.append(f"write {os.path.basename(target)}")
        rename(source, target)

    def note_unlink(path: str) -> None:
        calls.append(f"delete {os.path.basename(path)}")
        unlink(path)

    monkeypatch.setattr(os, "replace", note_rename)
    monkeypatch.setattr(os, "unlink", note_unlink)
    save(2, keep=1)
    assert calls == [
        "write step-2.safetensors",
        "write step-2.json",
        "delete step-1.json",
        "delete step-1.safetensors",
    ]


def test_names_of_checkpoints_are_not_kept_for_ever(folder, state, provenance, monkeypatch):
    """A Path interns its parts, which Python 3.12 then never frees."""
    arrays = {"a": np.zeros(3, np.float32)}
    interned: list[str] = []

    def note(text: str) -> str:
        interned.append(text)
        return text

    monkeypatch.setattr(sys, "intern", note)
    for step in (1, 2, 3):
        write_checkpoint(folder, arrays, replace(state, step=step), provenance, keep=1)
    assert not [text for text in interned if "step-" in text]
