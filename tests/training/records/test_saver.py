"""How far a training gets while a checkpoint is written to a slow disk."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from dnnstack.training import pace
from dnnstack.training.records.formats import store as checkpoint_store
from dnnstack.training.session import Session

from ...support.resuming import NOWHERE
from ...support.trainings import train


@pytest.mark.parametrize("chunk", [0.0, 1000.0])
@pytest.mark.parametrize("log_every", [1, 100])
@pytest.mark.parametrize("every", [1, 3, 5])
def test_training_is_one_chunk_ahead_of_a_slow_disk_at_most(
    tiny, reference, monkeypatch, every, log_every, chunk
):
    """A chunk is one step, or all the steps up to the next save, however many lines the log gets
    meanwhile; no write ends by itself."""
    monkeypatch.setattr(pace, "CHUNK_SECONDS", chunk)
    log = f"train={{max_steps: 20, log_every: {log_every}}}"
    config = tiny(log, f"checkpoint.every_steps={every}")
    real_write, real_run, real_join = (
        checkpoint_store.write_checkpoint,
        Session.run,
        threading.Thread.join,
    )
    go, begun, committed, ahead = threading.Event(), [0], [0], []

    def write(folder: Any, arrays: Any, state: Any, *rest: Any) -> Any:
        begun[0] = state.step
        assert go.wait(60)
        go.clear()
        found = real_write(folder, arrays, state, *rest)
        committed[0] = state.step
        return found

    def run(session: Session, *arguments: Any, **named: Any) -> None:
        real_run(session, *arguments, **named)
        ahead.append(session.step - committed[0])

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        # The disk answers only to one who waits for it.
        if thread.name == "checkpoint":
            go.set()
        real_join(thread, timeout)

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", write)
    monkeypatch.setattr(Session, "run", run)
    monkeypatch.setattr(threading.Thread, "join", join)
    train(config, reference, NOWHERE)
    assert max(ahead) == every + (1 if chunk == 0.0 else every)
    assert committed[0] == 20


def test_a_fast_disk_is_not_waited_for(tiny, reference, monkeypatch):
    """The write is done before the next chunk, so the thread that trains never has to wait."""
    real = threading.Thread.join
    waited = []

    def join(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "checkpoint":
            waited.append(thread.is_alive())
        real(thread, timeout)

    def run(session: Session, *arguments: Any, **named: Any) -> None:
        for thread in threading.enumerate():
            if thread.name == "checkpoint":
                real(thread)
        real_run(session, *arguments, **named)

    real_run = Session.run
    monkeypatch.setattr(Session, "run", run)
    monkeypatch.setattr(threading.Thread, "join", join)
    config = tiny("train={max_steps: 20, log_every: 100}", "checkpoint.every_steps=5")
    train(config, reference, NOWHERE)
    assert not any(waited[:-1])
