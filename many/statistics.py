"""The results of a group's runs: mean, deviation, minimum, maximum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..training.inference.intervals import wilson
from ..training.records.formats.state import figure
from ..training.records.group import Kind, read_group
from .group import runs_of
from .journal import Journal
from .outcome import Outcome, outcome

COLUMNS = ("accuracy", "best_accuracy", "loss", "seconds")


@dataclass(frozen=True)
class Spread:
    """Of some numbers; ``deviation``: the sample's, with n - 1, None of one number."""

    mean: float
    deviation: float | None
    minimum: float
    median: float
    maximum: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
        middle = float(np.median(values))
        return cls(float(np.mean(values)), deviation, min(values), middle, max(values))


@dataclass(frozen=True, repr=False)
class GroupReport:
    """A group with the outcomes of its runs, by name.

    ``spreads``: of each of ``COLUMNS`` that all finished runs have. ``together``: of folds that
    have all finished, the samples that were validated and those that were right in the last
    validation, of questions the share of right answers to each; None for other groups and numbers.
    """

    path: Path
    kind: Kind
    planned: int
    runs: dict[str, Outcome]
    spreads: dict[str, Spread]
    together: tuple[float, int] | None

    def __repr__(self) -> str:
        found = f"{self.finished} of {self.planned} {self.kind} finished"
        if spread := self.spreads.get("accuracy"):
            best, median, mean = (
                figure(self.measure, each) for each in (spread.maximum, spread.median, spread.mean)
            )
            deviation = "" if spread.deviation is None else ", deviation "
            deviation += figure(self.measure, spread.deviation) if deviation else ""
            name = "R2" if self.measure == "r2" else self.measure
            if self.kind == "sweep":
                found += f", {name} {best} at best, median {median}"
            else:
                found += f", {name} {mean} on average{deviation}"
        return f"<GroupReport of {str(self.path)!r}: {found}>"

    @property
    def measure(self) -> str:
        """What the accuracies are: "r2" where targets are numbers."""
        return "r2" if any(run.measure == "r2" for run in self.runs.values()) else "accuracy"

    @property
    def finished(self) -> int:
        return sum(run.finished for run in self.runs.values())

    def to_json(self) -> dict[str, Any]:
        together: dict[str, Any] | None = None
        if self.together is not None:
            right, count = self.together
            together = {"count": count, "accuracy": right / count}
            if isinstance(right, int):
                interval = [*wilson(right, count)]
                together = {"correct": right, **together, "accuracy_interval": interval}
        return {
            "group": self.path.name,
            "path": str(self.path),
            "kind": self.kind,
            "planned": self.planned,
            "finished": self.finished,
            "runs": [{"run": name, **run.to_json()} for name, run in self.runs.items()],
            "statistics": {name: vars(spread) for name, spread in self.spreads.items()},
            "together": together,
        }


def report_group(path: Path) -> GroupReport:
    """The report of the group in this folder. Raises CheckpointError."""
    group = read_group(path)
    runs = {run.name: outcome(run) for run in runs_of(path)}
    done = [run for run in runs.values() if run.finished]
    spreads = {}
    for name in COLUMNS:
        values = [getattr(run, name) for run in done]
        if values and None not in values:
            spreads[name] = Spread.of(values)
    together = None
    counted: list[tuple[float, int]] = [
        (run.correct, run.count) for run in done if run.correct is not None and run.count
    ]
    if not counted:
        # To questions the answers are counted, not the samples.
        counted = [
            (run.accuracy * run.count, run.count)
            for run in done
            if run.accuracy is not None and run.count and run.measure == "accuracy"
        ]
    if group.kind == "folds" and len(counted) == len(group.members):
        right, count = (sum(each) for each in zip(*counted, strict=True))
        together = right, int(count)
    planned = len(group.members) or len(runs)
    if group.kind == "sweep":
        # One that was interrupted before its first step has no folder, and is still to be trained.
        planned += sum(t.state is None and t.name not in runs for t in Journal(path).read())
    return GroupReport(path, group.kind, planned, runs, spreads, together)
