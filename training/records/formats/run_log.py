"""The records of a run: ``log.jsonl`` with everything, ``metrics.csv`` with what can be plotted.

``metrics.csv`` has no times, so two runs with the same bits write the same file. A row is
``step,epoch,split,loss,accuracy,learning_rate``; ``epoch`` counts passes over the training set.
Where targets are numbers, r2 takes the place of accuracy.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from ....common.errors import CheckpointError, explaining
from ....common.files import append, atomic_write, open_regular, regular_lines
from ....common.records import dataclass
from ....common.targets import EVERY_METRIC
from ....common.typed_json import Count, Finite, Name, from_json
from .record import NO_RECORD
from .state import Metrics

T = TypeVar("T")
RunState = Literal["running", "finished", "interrupted", "failed", "died"]
LOG = "log.jsonl"
CSV = "metrics.csv"
# Bytes that a log may have.
LONGEST = 1 << 32
HEADERS = {
    measure: f"step,epoch,split,loss,{measure},learning_rate\n" for measure in ("accuracy", "r2")
}
_ADVICE = "free some space or choose another folder with run.dir, then resume"


class RunLog:
    """Appends to both files of a run folder; every line is complete or not there."""

    def __init__(self, folder: Path, measure: str = "accuracy") -> None:
        self._folder, self._header = folder, HEADERS[measure]
        self._open()

    def _open(self) -> None:
        self._files: dict[str, int] = {}
        try:
            for name in (LOG, CSV):
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
                self._files[name] = open_regular(self._folder / name, flags)
            if os.fstat(self._files[CSV]).st_size == 0:
                append(self._files[CSV], self._header.encode())
        except OSError as error:
            with contextlib.suppress(CheckpointError):
                self.close()
            raise _unwritable(Path(error.filename or self._folder), error) from None

    def event(self, name: str, step: int, **fields: Any) -> None:
        """A line of the log. Numbers that are not finite become null.

        After the end of a training, both files survive a crash of the machine.
        """
        table = {"event": name, "step": step, **fields}
        line = json.dumps({key: _finite(value) for key, value in table.items()}) + "\n"
        self._append(LOG, line)
        if name == "end":
            with explaining(self._folder / LOG, "cannot be written", _ADVICE):
                self.sync()

    def metrics(
        self,
        split: Literal["train", "validation"],
        step: int,
        epoch: float,
        metrics: Metrics,
        rate: float,
        **fields: Any,
    ) -> None:
        """Loss and accuracy (R2) in both files; ``fields`` (times and counts) only in the log."""
        values = {"loss": metrics.loss, metrics.measure: metrics.accuracy, "learning_rate": rate}
        # What the sums say comes first, as where there are no others.
        others = {**values, **(metrics.others or {}), **values}
        self.event(split, step, epoch=epoch, **others, **fields)
        row = ",".join(repr(value) for value in values.values())
        self._append(CSV, f"{step},{epoch!r},{split},{row}\n")

    def sync(self) -> None:
        """Make what was written so far survive a crash of the machine. Raises OSError."""
        for descriptor in self._files.values():
            os.fsync(descriptor)

    def copy_to(self, folder: Path) -> None:
        """Write both files once more, into another folder. Raises OSError."""
        for name, descriptor in self._files.items():
            atomic_write(folder / name, os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    def cut(self, step: int, window_start: int, rollbacks: int, validation_due: bool) -> None:
        """Drop later lines: see ``cut_log``."""
        self.close()
        cut_log(self._folder, step, window_start, rollbacks, validation_due)
        self._open()

    def close(self) -> None:
        """Close both files. Raises CheckpointError, for a network's disk may only now be full."""
        faults: list[CheckpointError] = []
        while self._files:
            name, descriptor = self._files.popitem()
            try:
                os.close(descriptor)
            except OSError as error:
                faults.append(_unwritable(self._folder / name, error))
        if faults:
            raise faults[0]

    def __enter__(self) -> RunLog:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        try:
            self.close()
        except CheckpointError:
            # What happened first is what matters.
            if kind is None:
                raise

    def _append(self, name: str, line: str) -> None:
        with explaining(self._folder / name, "cannot be written", _ADVICE):
            append(self._files[name], line.encode())


def cut_log(
    folder: Path, step: int, window_start: int, rollbacks: int = 0, validation_due: bool = False
) -> None:
    """Drop from both files what continuing from a checkpoint of ``step`` will write again.

    These are: everything of later steps; training metrics later than ``window_start`` (the line of
    an unfinished window at the end of a run); where ``validation_due``, the validation of ``step``
    and the checkpoint after it; rollbacks after the checkpoint; and an incomplete last line.
    """
    # The last step of which the lines of a kind stay.
    last = {"train": window_start}
    if validation_due:
        last |= {"validation": step - 1, "checkpoint": step - 1}

    def in_log(line: bytes) -> bool:
        entry = from_json(line, dict[str, Any])
        if entry["event"] == "rollback" and int(entry["rollback"]) > rollbacks:
            return False
        return int(entry["step"]) <= last.get(entry["event"], step)

    def in_csv(line: bytes) -> bool:
        if line.decode() in HEADERS.values():
            return True
        at, epoch, split, *values = line.decode().rstrip("\n").split(",")
        if len(values) != 3 or split not in ("train", "validation"):
            raise ValueError(line)
        _ = [float(value) for value in (epoch, *values)]
        return int(at) <= last.get(split, step)

    _filter(folder / LOG, in_log)
    _filter(folder / CSV, in_csv)


@dataclass(frozen=True)
class Line:
    """What is read of a line of the log; ``seconds`` are those of training so far."""

    event: Name
    step: Count
    time: Finite | None = None
    total_steps: Count | None = None
    epoch: Finite | None = None
    seconds: Finite | None = None
    training_seconds: Finite | None = None
    validation_seconds: Finite | None = None
    saving_seconds: Finite | None = None
    best: bool = False
    accuracy: Finite | None = None
    r2: Finite | None = None
    loss: Finite | None = None
    learning_rate: Finite | None = None
    rmse: Finite | None = None
    mae: Finite | None = None
    precision: Finite | None = None
    recall: Finite | None = None
    f1: Finite | None = None
    roc_auc: Finite | None = None
    calibration_error: Finite | None = None
    cross_entropy: Finite | None = None
    kl_divergence: Finite | None = None
    correct: Count | None = None
    count: Count | None = None
    spread: Finite | None = None
    state: RunState | None = None
    early: bool = False
    goal: bool | None = None
    error: str | None = None
    versions: Mapping[str, str] | None = None
    backend: Name | None = None
    ranks: Count | None = None

    @property
    def measured(self) -> float | None:
        """The accuracy, or R2."""
        return self.accuracy if self.r2 is None else self.r2

    @property
    def measure(self) -> str:
        """What that is."""
        return "accuracy" if self.r2 is None else "r2"

    def others(self) -> dict[str, float]:
        """What else a validation has measured, by name."""
        found = {name: getattr(self, name) for name in EVERY_METRIC}
        return {name: value for name, value in found.items() if value is not None}


def log_lines(log: Path, kind: type[T]) -> Iterator[T | None]:
    """What the lines of a log say, without one that is being written; None of a damaged one.

    There are none if it is missing. Raises CheckpointError if it cannot be read.
    """
    try:
        for line in regular_lines(log, LONGEST):
            found = None
            with contextlib.suppress(ValueError):
                found = from_json(line, kind)
            if found is not None or line.endswith(b"\n"):
                yield found
    except OSError as error:
        if error.errno not in NO_RECORD:
            raise CheckpointError(f"{log}: cannot be read: {error.strerror}") from None


def _filter(path: Path, wanted: Callable[[bytes], bool]) -> None:
    def sound(line: bytes) -> bool:
        try:
            return line.endswith(b"\n") and wanted(line)
        except (ValueError, KeyError, TypeError, OverflowError):
            return False

    try:
        if not all(map(sound, regular_lines(path, LONGEST))):
            atomic_write(path, (line for line in regular_lines(path, LONGEST) if sound(line)))
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(path, error) from None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _unwritable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path}: cannot be written: {error.strerror}; {_ADVICE}")
