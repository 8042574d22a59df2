"""What a training does while a checkpoint is written, and what it holds in memory until a save."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dnnstack.common.errors import CheckpointError
from dnnstack.training import pace
from dnnstack.training.records.formats import store as checkpoint_store
from dnnstack.training.records.formats.run_log import CSV, LOG
from dnnstack.training.records.formats.state import Metrics
from dnnstack.training.records.formats.store import best_checkpoint, checkpoint_steps
from dnnstack.training.records.saver import Saver
from dnnstack.training.session import Session

from ...support.resuming import NOWHERE, go, resume
from ...support.trainings import end_of, same, train


@pytest.fixture(autouse=True)
def _one_step_a_chunk(monkeypatch):
    monkeypatch.setattr(pace, "CHUNK_SECONDS", 0.0)


@pytest.fixture
def written(monkeypatch) -> list[int]:
    """The steps whose checkpoints are written, in this order."""
    real, steps = checkpoint_store.write_checkpoint, list[int]()

    def write(folder: Any, arrays: Any, state: Any, *rest: Any) -> Any:
        found = real(folder, arrays, state, *rest)
        steps.append(state.step)
        return found

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", write)
    return steps


@pytest.fixture
def accuracies(monkeypatch) -> Callable[..., None]:
    """Sets what the validations find, in percent, one after the other by epochs of 10 steps."""

    def found(*percent: int) -> None:
        def validate(session: Session, stop: Any = None) -> Metrics:
            return Metrics(1.0, percent[session.step // 10 - 1], 100)

        monkeypatch.setattr(Session, "validate", validate)

    return found


@pytest.mark.parametrize(("keep", "most", "steps"), [(1, 20, [5, 20]), (2, 15, [5, 10, 15, 20])])
def test_steps_go_on_while_a_checkpoint_is_written(
    tiny, reference, monkeypatch, written, keep, most, steps
):
    """The first is written until the training can get no further. What waits gives way to a newer
    one that would delete it; else the training waits at the second save behind the first."""
    real_write, real_run = checkpoint_store.write_checkpoint, Session.run
    at, reached = [0], [0]
    begun, there, beyond = threading.Event(), threading.Event(), threading.Event()

    def write(folder: Any, arrays: Any, state: Any, *rest: Any) -> Any:
        begun.set()
        if state.step == 5:
            assert there.wait(60)
            beyond.wait(0.2)
            reached[0] = at[0]
        return real_write(folder, arrays, state, *rest)

    def run(session: Session, *arguments: Any, **named: Any) -> None:
        real_run(session, *arguments, **named)
        at[0] = session.step
        assert session.step <= 5 or begun.wait(60)
        if session.step >= most:
            (there if session.step == most else beyond).set()

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", write)
    monkeypatch.setattr(Session, "run", run)
    saving = f"checkpoint={{every_steps: 5, keep: {keep}, best: false}}"
    train(tiny("train={max_steps: 20, log_every: 100}", saving), reference, NOWHERE)
    assert reached == [most]
    assert written == steps


EVERY_3 = ("train={epochs: 5, log_every: 10}", "checkpoint={every_epochs: 3, keep: 1, best: true}")


@pytest.mark.parametrize(
    ("percent", "kept", "steps"),
    [
        ((10, 30, 20, 40, 10), "true", [20, 30, 40, 50]),
        ((10, 20, 30, 5, 40), "true", [20, 30, 50]),
        ((10, 30, 20, 40, 10), "false", [30, 50]),
    ],
)
def test_the_best_is_held_until_the_next_save(
    tiny, reference, written, accuracies, percent, kept, steps
):
    """One that a better one follows before is never written, and one that is due itself once; none
    has a line of its own in the log."""
    accuracies(*percent)
    ended = go(tiny(*EVERY_3, f"checkpoint.best={kept}"), reference)
    assert written == steps
    assert checkpoint_steps(ended.run / "checkpoints") == sorted({50, *steps[-2:]} - {30})[::-1]
    best = best_checkpoint(ended.run / "checkpoints").state
    assert (best.best, best.validation_due) == (ended.best, False)
    assert best.step == (ended.best.step if kept == "true" else 50)
    assert _saved_lines(ended.run) == [30, 50]


@pytest.mark.parametrize(("stop", "steps"), [(20, [20]), (23, [20, 23])])
def test_a_stop_writes_what_is_held(tiny, reference, written, accuracies, stop, steps):
    accuracies(10, 30, 20, 40, 10)
    config = tiny(*EVERY_3)
    whole = go(config, reference)
    written.clear()
    # At step 20 the validation comes before the stop is asked for.
    half = go(config, reference, stop_at=stop)
    assert (half.state, written) == ("interrupted", steps)
    same(end_of(whole), end_of(resume(config, reference, half.run)))


class Killed(BaseException):
    """What no handler takes for an error."""


@pytest.mark.parametrize(("step", "left"), [(25, []), (35, [30, 20]), (45, [30, 20])])
def test_a_kill_between_two_saves_loses_what_is_held(
    tiny, reference, monkeypatch, accuracies, step, left
):
    """The resume finds it again: the same bits, lines and files as without the kill."""
    accuracies(10, 30, 20, 40, 10)
    config = tiny(*EVERY_3)
    whole = go(config, reference)
    real = Session.run

    def run(session: Session, *arguments: Any, **named: Any) -> None:
        real(session, *arguments, **named)
        if session.step == step:
            # Nothing more comes to the disk.
            patch.setattr(checkpoint_store.CheckpointWriter, "save", lambda *_: None)
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", run)
        with pytest.raises(Killed):
            go(config, reference)
    killed = whole.run.with_name("tiny-2")
    assert checkpoint_steps(killed / "checkpoints") == left
    done = go(config, reference, killed)
    same(end_of(whole), end_of(done))
    assert checkpoint_steps(killed / "checkpoints") == [50, 40]
    assert _saved_lines(killed) == [30, 50]
    assert (killed / CSV).read_bytes() == (whole.run / CSV).read_bytes()


def _saved_lines(run: Path) -> list[int]:
    """The steps of the log's lines of checkpoints."""
    lines = map(json.loads, (run / LOG).read_text().splitlines())
    return [line["step"] for line in lines if line["event"] == "checkpoint"]


def test_nothing_is_held_after_a_write_that_failed(tiny, reference, monkeypatch, accuracies):
    """Else its write, at the end of the training, would be a second attempt."""
    accuracies(10, 20, 30, 40, 50)
    tried = []

    def full(folder: Any, arrays: Any, state: Any, *rest: Any) -> str:
        tried.append(state.step)
        # Fails once the next best is held.
        assert held.wait(60)
        raise OSError(28, "No space left on device")

    held, real = threading.Event(), Saver.hold

    def hold(saver: Saver, snapshot: Any) -> None:
        real(saver, snapshot)
        if snapshot.step == 40:
            held.set()

    monkeypatch.setattr(checkpoint_store, "write_checkpoint", full)
    monkeypatch.setattr(Saver, "hold", hold)
    with pytest.raises(CheckpointError, match="No space left"):
        go(tiny(*EVERY_3), reference)
    assert tried == [20]
