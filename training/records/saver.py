"""Saver: saves the state of a training as checkpoints of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ..pace import chunk_is_over
from .formats.checkpoint import Checkpoint, read_checkpoint
from .formats.run_log import RunLog
from .formats.state import START, Snapshot, State
from .formats.store import FOLDER, CheckpointWriter, Place, tensors_name, tensors_path
from .runs import Run, create_run


class Saver:
    """``state`` is that of the next checkpoint, except for its step and sums.

    ``source`` is the checkpoint to go on from, None at the start of a training; where it lies in
    the run's own folder it need not be saved again.
    """

    def __init__(
        self,
        run: Run,
        log: RunLog,
        writer: CheckpointWriter,
        source: Checkpoint | None,
        saving: Callable[[int, Path], None],
    ) -> None:
        self.run, self.source = run, source
        self.state = self._first = source.state if source is not None else START
        self._folder = run.checkpoints
        self._log, self._writer, self._saving = log, writer, saving
        self._noted = self._unlogged = -1
        self._behind, self._begun = False, 0.0
        self._saved: State | None = None
        if source is not None and source.path.parent.resolve() == self._folder.resolve():
            self._saved = source.state
            if not source.state.validation_due:
                self._noted = source.state.step

    def note(self, **changes: Any) -> None:
        """Change the state of the next checkpoint."""
        self.state = replace(self.state, **changes)

    def save(self, snapshot: Snapshot, logged: bool = True) -> None:
        """Pass a snapshot, known to be finite, to the writer.

        ``logged``: with a line in the log, at the first save of a step.
        """
        step = snapshot.step
        self.note(step=step, sums=tuple(snapshot.sums.tolist()))
        # Log it first: a process killed right after the commit could not.
        if logged and self._noted != step:
            self._log.event("checkpoint", step, file=tensors_name(step))
            self._noted = step
        self._unlogged = -1 if logged else step
        self._writer.save(snapshot.arrays, self.state)
        self._behind, self._begun = False, perf_counter()
        self._saved = self.state
        self._saving(step, tensors_path(self._folder, step))

    def unlogged(self) -> str | None:
        """The file of the last save if that has no line in the log."""
        return tensors_name(self._unlogged) if self._unlogged >= 0 else None

    def keep_up(self) -> None:
        """To be called before every chunk of steps: wait for a save that lasts longer than one.

        A chunk that a line of the log has ended early does not count. So a kill loses what was done
        since the last save that was due, and at most a chunk of steps before it. Raises the
        CheckpointError of a save that has failed.
        """
        if self._behind and chunk_is_over(self._begun):
            self._writer.wait()
        else:
            self._writer.check()
        self._behind = True

    def wait(self) -> None:
        """Wait for the outstanding save; raise its CheckpointError."""
        self._writer.wait()

    def needs_saving(self, step: int) -> bool:
        """Whether the run has no checkpoint of the state after ``step`` updates."""
        return self._saved is None or self._saved != replace(
            self.state, step=step, sums=self._saved.sums
        )

    def last_good(self) -> Checkpoint | None:
        """The last checkpoint saved, read back; else that of the start, if any.

        Raises CheckpointError.
        """
        self._writer.wait()
        if self._saved is None:
            return self.source
        return read_checkpoint(tensors_path(self._folder, self._saved.step))

    def last_path(self) -> Path | None:
        """The file of the last checkpoint."""
        if self._saved is not None:
            return tensors_path(self._folder, self._saved.step)
        return self.source.path if self.source is not None else None

    def go_back(self, good: Checkpoint | None, rate_factor: float) -> State:
        """Take the state of a checkpoint, or of the start, with a lower rate; returns it."""
        state = self._first if good is None else good.state
        rollbacks = self.state.rollbacks + 1
        self.state = replace(state, rate_factor=rate_factor, rollbacks=rollbacks)
        noted = good is not None and not state.validation_due
        self._noted = state.step if noted else -1
        return self.state


def place_to_save(run: Run, log: RunLog, name: str, config: str) -> Place:
    """The run's own folder; where it was moved to; or a new run with the records of this one.

    name, config: those of the run. Raises CheckpointError or OSError if no new run can be created.
    """
    path = run.present_path()
    if path == run.path:
        return Place(run.checkpoints)
    if path is not None:
        return Place(path / FOLDER, f"{run.path}: was moved during the training")
    with create_run(run.path.parent, name, config, lambda text: None) as new:
        log.copy_to(new.path)
        return Place(new.checkpoints, f"{run.path}: was removed during the training")
