"""The thread that writes checkpoints."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats import store as checkpoint_store
from dnnstack.training.records.formats.store import CheckpointWriter, checkpoint_steps


def test_the_writer_works_in_the_background(tmp_path, state, provenance):
    folder = tmp_path / "new" / "checkpoints"
    writer = CheckpointWriter(folder, provenance, keep=2)
    for step in (1, 2, 3):
        writer.save({"a": np.full(3, step, np.float32)}, replace(state, step=step, best=None))
    writer.wait()
    assert checkpoint_steps(folder) == [3, 2]


def test_at_most_one_write_is_outstanding(folder, state, provenance, monkeypatch):
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
    folder, state, provenance, monkeypatch, call
):
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


def test_the_writer_does_first_what_it_is_told(folder, state, provenance):
    done: list[int] = []
    writer = CheckpointWriter(
        folder, provenance, 2, True, (), lambda: done.append(len(checkpoint_steps(folder)))
    )
    for step in (1, 2):
        writer.save({"a": np.full(3, step, np.float32)}, replace(state, step=step, best=None))
    writer.wait()
    assert done == [0, 1]

    def full() -> None:
        raise OSError(28, "No space left on device")

    writer = CheckpointWriter(folder, provenance, 2, True, (), full)
    writer.save({"a": np.zeros(3, np.float32)}, replace(state, step=3))
    with pytest.raises(CheckpointError, match="No space left"):
        writer.wait()
    assert checkpoint_steps(folder) == [2, 1]
