"""Keeper: where a training stands, saved as checkpoints of its run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from .checkpoint import Checkpoint, read_checkpoint
from .checkpoint_store import CheckpointWriter, tensors_path
from .run_log import RunLog
from .runs import Run
from .session import Snapshot
from .state import State


class Keeper:
    """``state`` is what the next checkpoint will say, but for its step and sums.

    ``source`` is the checkpoint that the state is from, None at the start of a training; where it
    lies in the run's own folder (``kept``) it need not be saved again.
    """

    def __init__(
        self,
        state: State,
        source: Checkpoint | None,
        run: Run,
        log: RunLog,
        writer: CheckpointWriter,
        saving: Callable[[int, Path], None],
    ) -> None:
        self.state = state
        self._first = state
        self._source = source
        self._folder = run.checkpoints
        self._log = log
        self._writer = writer
        self._saving = saving
        self._noted = -1
        self._saved: State | None = None
        if source is not None and source.path.parent.resolve() == self._folder.resolve():
            self._noted = source.state.step
            self._saved = state

    def save(self, snapshot: Snapshot) -> None:
        """Hand a snapshot, known to be finite, to the writer."""
        step = snapshot.step
        self.state = replace(self.state, step=step, sums=tuple(snapshot.sums.tolist()))
        path = tensors_path(self._folder, step)
        # Noted first: a process killed behind the commit would leave no line of it.
        if self._noted != step:
            self._log.event("checkpoint", step, file=path.name)
            self._noted = step
        self._writer.save(snapshot.arrays, self.state)
        self._saved = self.state
        self._saving(step, path)

    def needs_saving(self, step: int) -> bool:
        """Whether the state after ``step`` updates is in no checkpoint of the run."""
        return self._saved is None or self._saved != replace(
            self.state, step=step, sums=self._saved.sums
        )

    def last_good(self) -> Checkpoint | None:
        """The last checkpoint saved, read back; else that of the start, if any.

        Raises CheckpointError.
        """
        self._writer.wait()
        if self._saved is None:
            return self._source
        return read_checkpoint(tensors_path(self._folder, self._saved.step))

    def last_path(self) -> Path | None:
        """The file of the last checkpoint."""
        if self._saved is not None:
            return tensors_path(self._folder, self._saved.step)
        return self._source.path if self._source is not None else None

    def go_back(self, good: Checkpoint | None, rate_factor: float) -> State:
        """Take the state of a checkpoint, or of the start, with a lower rate; returns it."""
        old = self._first if good is None else good.state
        self.state = replace(
            self.state,
            step=old.step,
            window_start=old.window_start,
            sums=old.sums,
            best=old.best,
            unimproved=old.unimproved,
            validation_due=old.validation_due,
            measured=old.measured,
            rate_factor=rate_factor,
            rollbacks=self.state.rollbacks + 1,
        )
        self._noted = old.step if good is not None else -1
        return self.state
