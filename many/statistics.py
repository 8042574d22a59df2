"""The results of a group's runs: mean, deviation, minimum, maximum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.targets import r2_of
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

    ``spreads``: of each of ``COLUMNS`` that all finished runs have. ``together``: what the last
    validations of folds that have all finished say of all samples, see ``over_all``.
    """

    path: Path
    kind: Kind
    planned: int
    runs: dict[str, Outcome]
    spreads: dict[str, Spread]
    together: dict[str, Any] | None

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
        return {
            "group": self.path.name,
            "path": str(self.path),
            "kind": self.kind,
            "planned": self.planned,
            "finished": self.finished,
            "runs": [{"run": name, **run.to_json()} for name, run in self.runs.items()],
            "statistics": {name: vars(spread) for name, spread in self.spreads.items()},
            "together": self.together,
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
    if group.kind == "folds" and len(done) == len(group.members):
        together = over_all(done)
    planned = len(group.members) or len(runs)
    if group.kind == "sweep":
        # One that was interrupted before its first step has no folder, and is still to be trained.
        planned += sum(t.state is None and t.name not in runs for t in Journal(path).read())
    return GroupReport(path, group.kind, planned, runs, spreads, together)


def over_all(folds: Sequence[Outcome]) -> dict[str, Any] | None:
    """What the last validations of all folds measure together: each sample counts once.

    ``count``, and ``r2``, ``rmse`` and ``mae`` of numbers; else ``accuracy``, and of classes
    ``correct`` and ``accuracy_interval``. None if a log, as of an older version, does not say it.
    """
    counts = [run.count or 0 for run in folds]
    if not all(counts):
        return None
    count = sum(counts)

    def mean(values: Sequence[float]) -> float:
        return math.fsum(n * value for n, value in zip(counts, values, strict=True)) / count

    if (spread := folds[0].spread) is not None:
        last = [run.others[-1] for run in folds if run.others]
        if not all("rmse" in each for each in last):
            return None
        squared = mean([each["rmse"] ** 2 for each in last])
        errors = {"rmse": math.sqrt(squared), "mae": mean([each["mae"] for each in last])}
        return {"count": count, "r2": r2_of(squared, spread), **errors}
    right = [run.correct for run in folds if run.correct is not None]
    if len(right) == len(folds):
        share = {"correct": sum(right), "count": count, "accuracy": sum(right) / count}
        return {**share, "accuracy_interval": [*wilson(sum(right), count)]}
    # To questions the answers are counted, not the samples.
    shares = [run.accuracy for run in folds if run.accuracy is not None]
    if right or len(shares) < len(folds) or any(run.measure == "r2" for run in folds):
        return None
    return {"count": count, "accuracy": mean(shares)}
