"""Run folders that go away while their training goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import CheckpointError
from dnnstack.configs import RunConfig
from dnnstack.training.listener import Listener, Progress, Started
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

SAVING = ("checkpoint.every_steps=5", "train.log_every=1")


class AtStep(Listener):
    """Acts on the run's folder at a line of the log, while nothing is being saved."""

    def __init__(self, step: int, action: Callable[[Path], object]) -> None:
        self._step, self._action = step, action

    def started(self, started: Started) -> None:
        self._run = started.run

    def logged(self, progress: Progress) -> None:
        if progress.step == self._step:
            self._action(self._run)


def interrupted_by(
    config: RunConfig, backend: Backend, tmp_path: Path, action: Callable[[Path], object]
) -> str:
    with pytest.raises(CheckpointError) as caught:
        train(config, backend, tmp_path, listener=AtStep(4, action))
    return str(caught.value)


def steps_of(run: Path) -> list[int]:
    rows = (run / "metrics.csv").read_text().splitlines()[1:]
    return [int(row.split(",")[0]) for row in rows if ",train," in row]


def test_a_run_that_was_moved_is_saved_where_it_is(tiny, reference, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    said = interrupted_by(tiny(*SAVING), reference, tmp_path, lambda run: run.rename(elsewhere))
    assert f"{tmp_path / 'runs' / 'tiny'}: was moved during the training; step" in said
    assert f"continue with --resume {elsewhere}" in said
    assert not (tmp_path / "runs" / "tiny").exists()
    resume = open_resume(elsewhere, print)
    assert resume.checkpoint is not None
    assert f"step {resume.checkpoint.state.step} is saved" in said
    done = train(tiny(*SAVING), reference, tmp_path, resume=resume)
    assert (done.state, done.run) == ("finished", elsewhere)
    assert steps_of(elsewhere) == list(range(1, 26))


@pytest.mark.parametrize("again", [False, True], ids=["removed", "another in its place"])
def test_a_run_that_was_removed_is_saved_in_a_new_one(tiny, reference, tmp_path, again):
    def remove(run: Path) -> None:
        shutil.rmtree(run)
        if again:
            run.mkdir()
            (run / "mine").touch()

    said = interrupted_by(tiny(*SAVING), reference, tmp_path, remove)
    name = "tiny-2" if again else "tiny"
    new = tmp_path / "runs" / name
    assert "was removed during the training; step" in said
    assert f"continue with --resume {new}" in said
    assert [path.name for path in (tmp_path / "runs" / "tiny").iterdir()] == ["mine"] or not again
    done = train(tiny(*SAVING), reference, tmp_path, resume=open_resume(new, print))
    assert done.state == "finished"
    assert steps_of(new) == list(range(1, 26))


def test_what_cannot_be_saved_anywhere_is_said(tiny, reference, tmp_path):
    def remove(run: Path) -> None:
        shutil.rmtree(run.parent)
        run.parent.touch()

    said = interrupted_by(tiny(*SAVING), reference, tmp_path, remove)
    assert "cannot create a run folder" in said
