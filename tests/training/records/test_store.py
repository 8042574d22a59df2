"""The checkpoint folder: commit, choice, retention, and failure at every step of the protocol."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from dnnstack.common import files
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records import store as checkpoint_store
from dnnstack.training.records.provenance import Provenance
from dnnstack.training.records.state import Best, State
from dnnstack.training.records.store import (
    CheckpointWriter,
    best_checkpoint,
    checkpoint_steps,
    named_checkpoint,
    newest_checkpoint,
    write_checkpoint,
)

Save = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "run" / "checkpoints"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def save(folder: Path, state: State, provenance: Provenance) -> Save:
    """Save a step whose one array holds the step; ``best`` is the best step so far."""

    def call(step: int, best: int | None = None, keep: int = 100) -> Path:
        value = Best(best, 0.5, 0.1) if best is not None else None
        arrays = {"a": np.full(3, step, np.float32)}
        return write_checkpoint(
            folder, arrays, replace(state, step=step, best=value), provenance, keep
        )

    return call


def taken(folder: Path) -> tuple[int, list[str]]:
    notices: list[str] = []
    found = newest_checkpoint(folder, notices.append)
    assert found.arrays["a"][0] == found.state.step
    return found.state.step, notices


def test_newest_is_by_number_not_by_name_or_time(folder: Path, save: Save) -> None:
    for step in (9, 10, 100):
        save(step)
    for path in folder.glob("step-100.*"):
        os.utime(path, (0, 0))
    assert checkpoint_steps(folder) == [100, 10, 9]
    assert taken(folder) == (100, [])


def test_a_damaged_newest_is_told_and_the_one_before_taken(folder: Path, save: Save) -> None:
    save(1)
    save(2)
    path = save(3)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    step, notices = taken(folder)
    assert step == 2
    assert len(notices) == 1
    assert "step-3.safetensors" in notices[0]
    assert "is damaged" in notices[0]
    assert "using step-2.safetensors" in notices[0]


def test_two_damaged_ones_are_both_told(folder: Path, save: Save) -> None:
    save(1)
    save(2).write_bytes(b"")
    save(3).unlink()
    step, notices = taken(folder)
    assert step == 1
    assert ["step-3" in notices[0], "step-2" in notices[1]] == [True, True]


def test_without_its_manifest_a_file_is_no_checkpoint(folder: Path, save: Save) -> None:
    save(1)
    save(2).with_suffix(".json").unlink()
    step, notices = taken(folder)
    assert step == 1
    assert "has no manifest" in notices[0]


def test_older_damage_is_nobodys_business(folder: Path, save: Save) -> None:
    save(1).write_bytes(b"")
    save(2)
    assert taken(folder) == (2, [])


def test_nothing_usable_lists_every_fault(folder: Path, save: Save) -> None:
    save(1).write_bytes(b"")
    save(2).with_suffix(".json").write_text("{")
    with pytest.raises(CheckpointError) as caught:
        newest_checkpoint(folder)
    assert "step-1.safetensors" in str(caught.value)
    assert "step-2.json" in str(caught.value)


def test_no_checkpoint_yet(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        newest_checkpoint(folder)
    with pytest.raises(CheckpointError, match="has no checkpoint yet"):
        newest_checkpoint(folder / "missing")


def test_the_last_k_and_the_best_are_kept(folder: Path, save: Save) -> None:
    for step in range(1, 8):
        save(step, best=min(step, 2), keep=3)
    assert checkpoint_steps(folder) == [7, 6, 5, 2]
    assert {p.name for p in folder.iterdir()} == {
        f"step-{n}.{kind}" for n in (7, 6, 5, 2) for kind in ("json", "safetensors")
    }
    save(8, best=8, keep=1)
    assert checkpoint_steps(folder) == [8]


def test_the_best_can_be_let_go(
    folder: Path, save: Save, state: State, provenance: Provenance
) -> None:
    save(1, best=1)
    save(2, best=1)
    third = replace(state, step=3, best=Best(1, 0.5, 0.1))
    write_checkpoint(
        folder, {"a": np.full(3, 3, np.float32)}, third, provenance, 1, keep_best=False
    )
    assert checkpoint_steps(folder) == [3]


def test_best(folder: Path, save: Save) -> None:
    save(1, best=1)
    save(2, best=2)
    save(3, best=2)
    assert best_checkpoint(folder).state.step == 2
    save(4)
    assert best_checkpoint(folder).state.step == 4
    save(5, best=2, keep=1)
    (folder / "step-2.json").unlink()
    (folder / "step-2.safetensors").unlink()
    notices: list[str] = []
    assert best_checkpoint(folder, notices.append).state.step == 5
    assert "was not kept" in notices[0]


def test_a_given_up_history_goes_with_the_next_commit(folder: Path, save: Save) -> None:
    for step in (1, 2, 3, 4):
        save(step)
    save(2, keep=100)
    assert checkpoint_steps(folder) == [2, 1]


def test_leftovers_of_a_killed_writer_go(folder: Path, save: Save) -> None:
    (folder / ".step-1.safetensors.123.abcd.tmp").write_bytes(b"half")
    (folder / "step-1.safetensors").write_bytes(b"never committed")
    (folder / "notes.txt").write_text("mine")
    save(2)
    assert {p.name for p in folder.iterdir()} == {
        "notes.txt",
        "step-2.json",
        "step-2.safetensors",
    }


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

        wrapped = SimpleNamespace(write=write, flush=file.flush, fileno=file.fileno)
        return type(
            "File", (), {"__enter__": lambda self: wrapped, "__exit__": lambda self, *e: leave(*e)}
        )()


def test_the_last_checkpoint_survives_a_failure_of_any_call(
    folder: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_failing_deletion_is_no_failure(
    folder: Path, save: Save, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(1)

    def refuse(self: Path, missing_ok: bool = False) -> None:
        if self.exists():
            raise PermissionError(13, "not allowed", str(self))
        raise FileNotFoundError(2, "missing", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        save(2, keep=1)
    assert taken(folder) == (2, [])


def test_the_writer_works_in_the_background(
    tmp_path: Path, state: State, provenance: Provenance
) -> None:
    folder = tmp_path / "new" / "checkpoints"
    writer = CheckpointWriter(folder, provenance, keep=2)
    for step in (1, 2, 3):
        writer.save({"a": np.full(3, step, np.float32)}, replace(state, step=step, best=None))
    writer.wait()
    assert checkpoint_steps(folder) == [3, 2]


def test_at_most_one_write_is_outstanding(
    folder: Path, state: State, provenance: Provenance, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, running, most = threading.Event(), [], []

    def slow(*args: Any) -> Path:
        running.append(1)
        most.append(len(running))
        go.wait(10)
        running.pop()
        return folder

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", slow)
    writer = CheckpointWriter(folder, provenance, keep=2)
    writer.save({}, state)
    threading.Timer(0.05, go.set).start()
    writer.save({}, state)
    writer.wait()
    assert most == [1, 1]


@pytest.mark.parametrize("call", ["check", "wait", "save"])
def test_an_error_of_the_writer_is_raised_at_the_next_call(
    folder: Path, state: State, provenance: Provenance, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*args: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", full)
    writer = CheckpointWriter(folder, provenance, keep=2)
    writer.save({}, state)
    assert writer._thread is not None
    writer._thread.join()
    with pytest.raises(CheckpointError, match="No space left on device; free some space"):
        getattr(writer, call)(*(({}, state) if call == "save" else ()))
    # Raised once; what comes after is a new attempt.
    writer.check()


def test_a_damaged_file_that_was_named_gives_way_to_what_is_there(
    folder: Path, save: Save, tmp_path: Path
) -> None:
    save(1)
    path = save(2)
    save(3)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        CheckpointError, match=r"use another one in .*: step-3\.safe.*, step-1\.safe"
    ):
        named_checkpoint(path)
    alone = path.rename(tmp_path / "alone.safetensors")
    with pytest.raises(CheckpointError, match=r"SHA-256; copy it again .* or train again"):
        named_checkpoint(alone)


def test_the_same_step_is_replaced_without_a_moment_in_which_none_counts(
    folder: Path, state: State, provenance: Provenance, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_a_damaged_file_of_the_same_step_is_no_obstacle(
    folder: Path, save: Save, damage: str
) -> None:
    path = save(2)
    if damage == "tensors":
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    elif damage == "manifest":
        path.with_suffix(".json").write_text("{")
    else:
        path.unlink()
    save(2)
    assert taken(folder) == (2, [])


def test_a_manifest_that_announces_two_files_takes_no_third(folder: Path, save: Save) -> None:
    path = save(2)
    manifest = path.with_suffix(".json")
    table = json.loads(manifest.read_text())
    other = {"bytes": 5, "sha256": "0" * 64}
    manifest.write_text(json.dumps({**other, "step": 2, "replaces": table}))
    assert taken(folder) == (2, [])
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="is damaged"):
        newest_checkpoint(folder)


def test_the_writer_does_first_what_it_is_told(
    folder: Path, state: State, provenance: Provenance
) -> None:
    done: list[int] = []
    writer = CheckpointWriter(
        folder, provenance, 2, True, lambda: done.append(len(checkpoint_steps(folder)))
    )
    for step in (1, 2):
        writer.save({"a": np.full(3, step, np.float32)}, replace(state, step=step, best=None))
    writer.wait()
    assert done == [0, 1]

    def full() -> None:
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(folder, provenance, 2, True, full)
    writer.save({"a": np.zeros(3, np.float32)}, replace(state, step=3))
    with pytest.raises(CheckpointError, match="No space left"):
        writer.wait()
    assert checkpoint_steps(folder) == [2, 1]
