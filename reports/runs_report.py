"""The runs of a folder, read from their logs: state, best accuracy, steps, time."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..common.errors import CheckpointError
from ..common.files import read_regular
from ..common.locks import is_locked
from ..common.printable import paragraph
from ..common.records import dataclass
from ..training.records.formats.run_log import LOG, Line, RunState, log_lines
from ..training.records.formats.state import shown
from ..training.records.formats.store import FOLDER, checkpoint_steps
from ..training.records.runs import CONFIG, LOCK, LONGEST_CONFIG, config_name, list_runs
from .compressed_runs import CompressedRun, compressed_runs, of_run
from .tables import table

# No training takes 100,000 hours.
_NEVER = 3.6e8


@dataclass(frozen=True)
class RunReport:
    """One run. ``state`` died: its process ended without a message, for example by SIGKILL.

    ``best_accuracy``: of numbers their R2, as ``measure`` says. ``seconds``: training time over all
    its processes, without validation and saving; ``started``: seconds since 1970. ``early``:
    finished by patience or at its goal. ``error``: that of a failed run. ``compressed``: networks
    that ``compress`` made of it, in the same folder. ``versions``: of what it was trained with
    last; None if its log does not say. Seconds of validation and of saving are those of processes
    whose end is in the log.
    """

    run: str
    path: Path
    config: str | None
    state: RunState
    early: bool
    step: int
    total_steps: int | None
    best_accuracy: float | None
    best_step: int | None
    seconds: float
    started: float | None
    error: str | None
    compressed: tuple[CompressedRun, ...] = ()
    versions: Mapping[str, str] | None = None
    measure: str = "accuracy"
    validation_seconds: float = 0.0
    saving_seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        small = [each.to_json() for each in self.compressed]
        return {**vars(self), "path": str(self.path), "compressed": small}


def report_runs(
    runs_dir: Path, complain: Callable[[str], None] = lambda text: None
) -> list[RunReport]:
    """All runs of a folder, in the order in which they were started.

    ``complain`` is told of those whose log cannot be read, which are left out, and of those whose
    config cannot be. Raises CheckpointError.
    """
    reports = []
    compressed = compressed_runs(runs_dir, complain)
    for name in list_runs(runs_dir):
        path = runs_dir / name
        try:
            report = report_run(path)
        except CheckpointError as error:
            complain(str(error))
            continue
        reports.append(replace(report, compressed=tuple(of_run(path, compressed))))
        if report.config is None and not _has_config(path):
            complain(
                f"{path / CONFIG}: cannot be read as a config; the checkpoints of the run, if it "
                f"has any, are used all the same: dnnstack eval --run {path}"
            )
    return sorted(reports, key=lambda one: (one.started or 0.0, one.run))


def _has_config(path: Path) -> bool:
    """Whether the config of a run is one; it is not parsed, and may have been removed meanwhile."""
    try:
        return b"\nname:" in b"\n" + read_regular(path / CONFIG, LONGEST_CONFIG)
    except OSError as error:
        return error.errno == errno.ENOENT


def group_state(group: Path, planned: int) -> RunState:
    """The state of the runs of a group as one word. Raises CheckpointError."""
    states = [each.state for each in report_runs(group, lambda text: None)]
    for state in ("running", "failed", "died", "interrupted"):
        if state in states:
            return state
    return "finished" if states and len(states) >= planned else "interrupted"


def report_run(path: Path) -> RunReport:
    """The run in this folder. Raises CheckpointError."""
    # Checked before the log is read, because a process completes the log before it ends.
    locked = is_locked(path / LOCK)
    step, total, best, started, versions = 0, None, None, None, None
    ended: Line | None = None
    seconds = spent = validating = saving = 0.0
    known = complete = False
    for entry in log_lines(path / LOG, Line):
        complete = True
        if entry is None:
            continue
        known, event = True, entry.event
        step = max(step, entry.step) if event != "rollback" else entry.step
        if event in ("start", "resume"):
            started = started if started is not None else entry.time
            total = entry.total_steps if entry.total_steps is not None else total
            versions = entry.versions
            seconds, spent, ended = seconds + spent, 0.0, None
        elif event == "train":
            spent = entry.seconds if entry.seconds is not None else spent
        elif event == "validation" and entry.best:
            best = entry
        elif event == "end":
            ended = entry
            spent = entry.training_seconds if entry.training_seconds is not None else spent
            validating += entry.validation_seconds or 0.0
            saving += entry.saving_seconds or 0.0
    if not known and not locked and (complete or checkpoint_steps(path / FOLDER)):
        fault = "has no line that can be read" if os.path.lexists(path / LOG) else "is missing"
        raise CheckpointError(
            f"{path / LOG}: {fault}, so nothing is known of how the run went; "
            f"its checkpoints, if it has any, are used all the same: dnnstack eval --run {path}"
        )
    return RunReport(
        run=path.name,
        path=path,
        config=config_name(path),
        state="running" if locked else (ended and ended.state) or "died",
        early=not locked and ended is not None and ended.early,
        step=step,
        total_steps=total,
        measure=best.measure if best else "accuracy",
        best_accuracy=best.measured if best else None,
        best_step=best.step if best else None,
        seconds=seconds + spent,
        started=started,
        error=None if locked or ended is None else ended.error,
        versions=versions,
        validation_seconds=validating,
        saving_seconds=saving,
    )


def as_text(reports: list[RunReport], width: int = 80) -> str:
    """A table with one run per line, and its compressed networks below; long names are cut to fit
    the width."""
    head = ("run", "state", "best", "step", "time", "config")
    # Run and config share the width that the other columns leave.
    first, *rows = table([head, *map(_row, reports)], "<<>>><", width, {0: 2, 5: 1})
    lines = [first]
    for row, one in zip(rows, reports, strict=True):
        lines += [row, *(f"  {each}" for each in one.compressed)]
    return paragraph(lines)


def _row(one: RunReport) -> tuple[str, ...]:
    return (
        one.run,
        one.state,
        shown(one.measure, one.best_accuracy),
        f"{one.step}/{one.total_steps}" if one.total_steps is not None else str(one.step),
        _clock(one.seconds),
        one.config or "-",
    )


def _clock(seconds: float) -> str:
    """``0:05``, ``12:34``, ``1:02:03``; a damaged log may have any number."""
    if not 0 <= seconds < _NEVER:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
