"""Saver: saves the state of a training as checkpoints of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...common.errors import CheckpointError
from .formats.checkpoint import Checkpoint, read_checkpoint
from .formats.run_log import RunLog
from .formats.state import START, Snapshot, State
from .formats.store import FOLDER, CheckpointWriter, Place, Save, tensors_name, tensors_path
from .runs import Run, create_run


class Saver:
    """``state`` is that of the next checkpoint, except for its step and sums.

    A snapshot that is the best so far, at a step at which no save is due, is held in memory until
    the next save, which writes it first: what a checkpoint names as the best is always there.

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
        self._saved: State | None = None
        self._held: Save | None = None
        if source is not None and source.path.parent.resolve() == self._folder.resolve():
            self._saved = source.state
            if not source.state.validation_due:
                self._noted = source.state.step

    def note(self, **changes: Any) -> None:
        """Change the state of the next checkpoint."""
        self.state = replace(self.state, **changes)

    def hold(self, snapshot: Snapshot) -> None:
        """Keep the best snapshot so far, known to be finite, until the next save or ``wait``."""
        self._held = self._noted_save(snapshot)

    def save(self, snapshot: Snapshot, logged: bool = True) -> None:
        """Pass a snapshot, known to be finite, to the writer, behind the one that is held.

        ``logged``: with a line in the log, at the first save of a step.
        """
        step, save = snapshot.step, self._noted_save(snapshot)
        # Log it first: a process killed right after the commit could not.
        if logged and self._noted != step:
            self._log.event("checkpoint", step, file=tensors_name(step))
            self._noted = step
        self._unlogged = -1 if logged else step
        held = [] if self._held is None or self._held[1].step == step else [self._held]
        self._write(*held, save)

    def unlogged(self) -> str | None:
        """The file of the last save if that has no line in the log."""
        return tensors_name(self._unlogged) if self._unlogged >= 0 else None

    def check(self) -> None:
        """Raise the CheckpointError of a save that has failed; does not wait."""
        try:
            self._writer.check()
        except CheckpointError:
            # The training ends; what is held would fail too, or go to a run of its own.
            self._held = None
            raise

    def wait(self) -> None:
        """Write what is held, and wait for all saves; raise their CheckpointError."""
        if self._held is not None:
            self._write(self._held)
        self._writer.wait()

    def _write(self, *saves: Save) -> None:
        self._held = None
        self._writer.save(*saves)
        self._saved = saves[-1][1]
        for _, state in saves:
            self._saving(state.step, tensors_path(self._folder, state.step))

    def _noted_save(self, snapshot: Snapshot) -> Save:
        self.note(step=snapshot.step, sums=tuple(snapshot.sums.tolist()))
        return snapshot.arrays, self.state

    def needs_saving(self, step: int) -> bool:
        """Whether the run has no checkpoint of the state after ``step`` updates."""
        return self._saved is None or self._saved != replace(
            self.state, step=step, sums=self._saved.sums
        )

    def last_good(self) -> Checkpoint | None:
        """The last checkpoint, once it is saved, read back; else that of the start, if any.

        Raises CheckpointError.
        """
        self.wait()
        if self._saved is None:
            return self.source
        return read_checkpoint(tensors_path(self._folder, self._saved.step))

    def last_path(self) -> Path | None:
        """The file of the last checkpoint, saved or held."""
        last = self._saved if self._held is None else self._held[1]
        if last is not None:
            return tensors_path(self._folder, last.step)
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
