"""The runs of a folder, read from their logs: state, best accuracy, steps, time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..common.locks import is_locked
from ..common.text import cut
from ..training.records.run_log import LOG
from ..training.records.runs import LOCK, config_name, list_runs
from .units import table

RunState = Literal["running", "finished", "interrupted", "failed", "died"]


@dataclass(frozen=True)
class RunReport:
    """One run. ``state`` died: its process ended without a message, for example by SIGKILL.

    ``seconds``: training time over all its processes, without validation; ``started``: seconds
    since 1970. ``early``: finished by patience or at its goal. ``error``: that of a failed run.
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

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "path": str(self.path)}


def report_runs(runs_dir: Path) -> list[RunReport]:
    """All runs of a folder, in the order in which they were started."""
    reports = [_report(runs_dir / name) for name in list_runs(runs_dir)]
    return sorted(reports, key=lambda one: (one.started or 0.0, one.run))


def _report(path: Path) -> RunReport:
    # Checked before the log is read, because a process completes the log before it ends.
    locked = is_locked(path / LOCK)
    step, total, best, started = 0, None, None, None
    ended: dict[str, Any] = {}
    seconds = spent = 0.0
    for entry in _entries(path / LOG):
        event = entry["event"]
        step = max(step, entry["step"]) if event != "rollback" else entry["step"]
        if event in ("start", "resume"):
            started = started if started is not None else entry.get("time")
            total = entry.get("total_steps", total)
            seconds, spent, ended = seconds + spent, 0.0, {}
        elif event == "train":
            spent = entry.get("seconds", spent)
        elif event == "validation" and entry.get("best"):
            best = entry
        elif event == "end":
            ended = entry
            spent = entry.get("training_seconds", spent)
    return RunReport(
        run=path.name,
        path=path,
        config=config_name(path),
        state="running" if locked else ended.get("state", "died"),
        early=not locked and bool(ended.get("early")),
        step=step,
        total_steps=total,
        best_accuracy=best["accuracy"] if best else None,
        best_step=best["step"] if best else None,
        seconds=seconds + spent,
        started=started,
        error=None if locked else ended.get("error"),
    )


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a log, without one that is being written."""
    try:
        text = log.read_text("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            entry = json.loads(line)
            sound = isinstance(entry["event"], str) and isinstance(entry["step"], int)
        except (ValueError, KeyError, TypeError):
            continue
        if sound:
            yield entry


def as_text(reports: list[RunReport], width: int = 80) -> str:
    """A table with one run per line; long names are cut to fit the width."""
    head = ("run", "state", "best", "step", "time", "config")
    rows = [head, *(_row(one) for one in reports)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    # Run and config share the width that the other columns leave.
    room = max(width - sum(widths[1:5]) - 2 * (len(head) - 1), 16)
    widths[5] = min(widths[5], max(room - widths[0], room // 3))
    widths[0] = min(widths[0], room - widths[5])
    return "\n".join(table([list(map(cut, row, widths)) for row in rows], "<<>>><"))


def _row(one: RunReport) -> tuple[str, ...]:
    return (
        one.run,
        one.state,
        f"{one.best_accuracy:.2%}" if one.best_accuracy is not None else "-",
        f"{one.step}/{one.total_steps}" if one.total_steps is not None else str(one.step),
        _clock(one.seconds),
        one.config or "-",
    )


def _clock(seconds: float) -> str:
    """``0:05``, ``12:34``, ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
