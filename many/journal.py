"""The trials of a sweep, in its folder: ``trials.jsonl``, which several processes may write."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..common.errors import CheckpointError, Interrupted, LockedError
from ..common.files import append, open_regular, remove_abandoned
from ..common.locks import NO_LOCKS, Lock, is_locked, lock
from ..common.records import dataclass
from ..common.typed_json import Count, Finite, Name
from ..configs.search import Search
from ..training.records.formats.run_log import log_lines
from .sampling import Ended

TRIALS = "trials.jsonl"
_LOCK = "trials.lock"
_PAUSE = 0.01
_PATIENCE = 2.0
"""Seconds of waiting for another process once a stop is requested."""
State = Literal["complete", "pruned", "failed"]


@dataclass(frozen=True)
class _Line:
    """A line: that a trial was begun, with its values, or that it has ended."""

    event: Literal["begin", "end"]
    trial: Count
    params: dict[str, Any] | None = None
    state: State | None = None
    values: tuple[Finite, ...] | None = None
    reports: tuple[tuple[Count, Finite], ...] = ()
    seconds: Finite = 0.0
    epochs: Finite = 0.0
    why: Name = ""
    generation: Count | None = None


@dataclass(frozen=True)
class Trial:
    """A trial of a sweep. number: from 0; ``state``: None until it has ended.

    ``values``: of the objectives, of a complete one; ``reports``: of its validations, (step,
    value); ``why``: it was pruned or failed; ``generation``: that of the sampler nsga2.
    """

    number: int
    params: Mapping[str, Any]
    state: State | None = None
    values: tuple[float, ...] | None = None
    reports: tuple[tuple[int, float], ...] = ()
    seconds: float = 0.0
    epochs: float = 0.0
    why: str = ""
    generation: int | None = None

    @property
    def name(self) -> str:
        """That of its run's folder; people count from 1."""
        return f"trial-{self.number + 1}"

    def ended(self) -> Ended:
        """What the sampler sees of it."""
        return Ended(self.params, self.values, self.reports, self.generation)


class Journal:
    """Appends to the file; a line that is incomplete or damaged is as if never written.

    search: that of the sweep; other trials than it has are refused. None: they are not looked at.
    """

    def __init__(self, folder: Path, search: Search | None = None) -> None:
        self._folder, self._path, self._search = folder, folder / TRIALS, search

    @contextmanager
    def alone(self, stop_requested: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Wait until no other process is in this block.

        Raises Interrupted if another one stays in it although a stop is requested; CheckpointError.
        """
        held: Lock | None = None
        patience = _PATIENCE
        while held is None:
            try:
                held = lock(self._folder / _LOCK)
            except LockedError as error:
                # A process that was halted may keep the lock for as long as it likes.
                patience -= _PAUSE if stop_requested() else 0.0
                if patience <= 0.0:
                    raise Interrupted(f"interrupted; {error}") from None
                time.sleep(_PAUSE)
            except OSError as error:
                if error.errno in NO_LOCKS:
                    raise CheckpointError(
                        f"{self._folder}: this file system has no locks, which keep the workers "
                        "of a sweep apart; choose another folder with run.dir"
                    ) from None
                raise _failed(self._folder / _LOCK, error) from None
        with held:
            yield

    def read(self) -> list[Trial]:
        """All trials, in the order of their numbers. Raises CheckpointError."""
        found: dict[int, Trial] = {}
        for line in filter(None, log_lines(self._path, _Line)):
            if line.event == "begin":
                begun = Trial(line.trial, line.params or {}, generation=line.generation)
                found.setdefault(line.trial, begun)
            elif line.trial in found:
                begun = found[line.trial]
                # What was ended once stays so.
                if begun.state is None and line.state is not None:
                    found[line.trial] = replace(
                        begun, state=line.state, values=line.values, reports=line.reports,
                        seconds=line.seconds, epochs=line.epochs, why=line.why,
                    )  # fmt: skip
        trials = [found[number] for number in sorted(found)]
        for trial in trials:
            if self._search is not None and not _fits(trial, self._search):
                raise CheckpointError(
                    f"{self._path}: {trial.name} does not fit the search of this sweep, so the "
                    "file was changed; put it back as it was"
                )
        return trials

    def size(self) -> int:
        """Bytes of the file, which only grows; 0 without one."""
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def begin(self, trial: Trial) -> None:
        """Note a new trial; only inside ``alone``."""
        line = {"event": "begin", "trial": trial.number, "params": dict(trial.params)}
        self._append(line if trial.generation is None else line | {"generation": trial.generation})

    def end(self, trial: Trial) -> None:
        """Note how a trial ended; only inside ``alone``."""
        names = ("state", "values", "reports", "seconds", "epochs")
        found = {name: getattr(trial, name) for name in names}
        self._append({"event": "end", "trial": trial.number, **found, "why": trial.why[:1000]})

    def claim(self, trial: Trial) -> Lock | None:
        """Take a trial; None if another process has it, which releases it when it ends."""
        try:
            return lock(self._lock_of(trial), keep=False)
        except LockedError:
            return None
        except OSError as error:
            raise _failed(self._lock_of(trial), error) from None

    def check_own(self, trial: Trial, held: Lock) -> None:
        """Raise CheckpointError if another process has this trial, too; only inside ``alone``.

        Locks do not prevent that where each machine keeps its own. The other process may have begun
        it with other values.
        """
        other = held.also_taken_by()
        begun = json.loads(json.dumps(dict(trial.params)))
        noted = next((each for each in self.read() if each.number == trial.number), None)
        if other or noted is None or noted.state is not None or noted.params != begun:
            raise CheckpointError(
                f"{self._folder / trial.name}: was also trained by {other or 'another process'}, "
                "so locks in this folder do not reach from one machine to the other; work on this "
                "sweep on one machine at a time, or share the folder in another way"
            )

    def is_held(self, trial: Trial) -> bool:
        """Whether a process has this trial now."""
        return is_locked(self._lock_of(trial))

    def clear(self) -> None:
        """Delete what killed processes have left: locks of trials that have ended, and so on."""
        for trial in self.read():
            left = trial.state is not None and self._lock_of(trial).exists()
            if left and (held := self.claim(trial)) is not None:
                held.release()
        remove_abandoned(self._folder)

    def _lock_of(self, trial: Trial) -> Path:
        return self._folder / f"{trial.name}.lock"

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            descriptor = open_regular(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
            try:
                size = os.fstat(descriptor).st_size
                # A line that was torn ends here, or this one would be a part of it.
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                append(descriptor, b"\n" * torn + json.dumps(line).encode() + b"\n")
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _failed(self._path, error) from None


def _fits(trial: Trial, search: Search) -> bool:
    known = {each.key: each for each in search.dimensions}
    measured = len(search.objective) if trial.state == "complete" else 0
    return len(trial.values or ()) == measured and all(
        key in known and known[key].takes(value) for key, value in trial.params.items()
    )


def _failed(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{path}: cannot be read or written: {error.strerror}; free some space, or mend the "
        "folder, then resume"
    )
