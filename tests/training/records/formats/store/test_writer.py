"""The thread that writes checkpoints."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training.records.formats import store as checkpoint_store
from dnnstack.training.records.formats.store import CheckpointWriter, Place, checkpoint_steps


def test_the_writer_works_in_the_background(tmp_path, state, provenance):
    folder = tmp_path / "new" / "checkpoints"
    writer = CheckpointWriter(folder, provenance, keep=2)
    for step in (1, 2, 3):
        writer.save(({"a": np.full(3, step, np.float32)}, replace(state, step=step, best=None)))
    writer.wait()
    assert checkpoint_steps(folder) == [3, 2]


def full(*_: Any) -> str:
    raise OSError(28, "No space left on device")


@pytest.fixture
def slow(monkeypatch) -> tuple[threading.Event, list[int]]:
    """The writes of checkpoints, whose steps are listed, last until the event; step 0 fails."""
    go, steps, running = threading.Event(), list[int](), threading.Lock()

    def write(folder: Any, arrays: Any, state: Any, *rest: Any) -> str:
        with running:
            steps.append(state.step)
            assert go.wait(60)
            return "" if state.step else full()

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", write)
    return go, steps


@pytest.mark.parametrize(
    ("best", "written"),
    [([1, 2, 2, 2], [1, 2, 4]), ([1, 2, 3, 3], [1, 3, 4]), ([1] * 4, [1, 4]), (None, [1, 4])],
)
def test_a_newer_save_takes_the_place_of_one_that_it_would_delete(
    folder, state, provenance, slow, best, written
):
    go, steps = slow
    writer = CheckpointWriter(folder, provenance, keep=1)
    for step in (1, 2, 3, 4):
        found = best and replace(state.best, step=best[step - 1])
        writer.save(({}, replace(state, step=step, best=found)))
        while not steps:
            time.sleep(0.001)
    go.set()
    writer.wait()
    assert steps == written


@pytest.mark.parametrize(("keep", "best", "snapshots"), [(2, True, ()), (1, False, (2,))])
def test_a_save_waits_for_those_that_are_kept_beside_it(
    folder, state, provenance, slow, keep, best, snapshots
):
    """With more than one kept also for the best, step 2: which writes there are is no chance."""
    go, steps = slow
    writer = CheckpointWriter(folder, provenance, keep, best, snapshots)
    third = threading.Thread(target=lambda: writer.save(({}, replace(state, step=3))))
    for step in (1, 2):
        writer.save(({}, replace(state, step=step)))
        while not steps:
            time.sleep(0.001)
    third.start()
    third.join(0.1)
    assert third.is_alive()
    assert steps == [1]
    go.set()
    third.join(60)
    writer.wait()
    assert steps == [1, 2, 3]


def test_what_is_saved_together_is_written_in_order_and_in_one_place(folder, state, provenance):
    places: list[int] = []

    def place() -> Place:
        places.append(1)
        return Place(folder.with_name("moved"), "gone")

    writer = CheckpointWriter(folder, provenance, 2, place=place)
    each = [({"a": np.zeros(3, np.float32)}, replace(state, step=step)) for step in (1, 2)]
    writer.save(*each)
    with pytest.raises(CheckpointError, match="gone; step 2 is saved in"):
        writer.wait()
    assert checkpoint_steps(folder.with_name("moved")) == [2, 1]
    assert places == [1]


def test_what_waits_for_a_write_that_fails_is_not_written(folder, state, provenance, slow):
    go, steps = slow
    writer = CheckpointWriter(folder, provenance, keep=2)
    writer.save(({}, replace(state, step=0)))
    while not steps:
        time.sleep(0.001)
    writer.save(({}, replace(state, step=1)))
    go.set()
    with pytest.raises(CheckpointError, match="No space left"):
        writer.wait()
    assert steps == [0]


@pytest.mark.parametrize("call", ["check", "wait", "save"])
def test_an_error_of_the_writer_is_raised_at_the_next_call(
    folder, state, provenance, monkeypatch, call
):
    monkeypatch.setattr(checkpoint_store, "write_checkpoint", full)
    writer = CheckpointWriter(folder, provenance, keep=2)
    writer.save(({}, state))
    while writer._thread is not None:
        time.sleep(0.001)
    with pytest.raises(CheckpointError, match="No space left on device; free some space"):
        getattr(writer, call)(*([({}, state)] if call == "save" else ()))
    # Raised once; what comes after is a new attempt.
    writer.check()


def test_the_writer_does_first_what_it_is_told(folder, state, provenance):
    done: list[int] = []
    writer = CheckpointWriter(
        folder, provenance, 2, True, (), lambda: done.append(len(checkpoint_steps(folder)))
    )
    for step in (1, 2):
        writer.save(({"a": np.full(3, step, np.float32)}, replace(state, step=step, best=None)))
    writer.wait()
    assert done == [0, 1]

    writer = CheckpointWriter(folder, provenance, 2, before=full)
    writer.save(({"a": np.zeros(3, np.float32)}, replace(state, step=3)))
    with pytest.raises(CheckpointError, match="No space left"):
        writer.wait()
    assert checkpoint_steps(folder) == [2, 1]
