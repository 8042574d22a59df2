"""What a sweep has found: its trials, the best of them, and how much each key matters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.records import dataclass
from ..configs.search import Search
from ..many.journal import Journal, Trial
from ..many.outcome import outcome
from ..many.sampling import importances
from ..many.sweeping import BEST, best_trials, read_search

Validations = tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class SweepReport:
    """A sweep with its trials, in the order of their numbers.

    ``best``: all complete trials of one objective, the best first, or of two those that none beats.
    ``importance``: of each objective, the share of each key; empty for too few trials.
    ``validations``: of each trial by name, step, accuracy and loss.
    """

    path: Path
    search: Search
    trials: list[Trial]
    best: list[Trial]
    importance: Mapping[str, Mapping[str, float]]
    validations: Mapping[str, Validations]

    @property
    def best_config(self) -> Path | None:
        """The config of the best trial, if there is one."""
        path = self.path / BEST
        return path if path.is_file() else None

    def to_json(self) -> dict[str, Any]:
        return {
            **described(self.path, self.search, self.trials),
            "importance": {name: dict(shares) for name, shares in self.importance.items()},
            "best_config": None if self.best_config is None else str(self.best_config),
        }


def report_sweep(path: Path) -> SweepReport:
    """The report of the sweep in this folder. Raises CheckpointError."""
    search = read_search(path)
    trials = Journal(path, search).read()
    found = {trial.name: outcome(path / trial.name).validations for trial in trials}
    shares = importances(search, [trial.ended() for trial in trials])
    return SweepReport(path, search, trials, best_trials(search, trials), shares, found)


def described(path: Path, search: Search, trials: list[Trial]) -> dict[str, Any]:
    """The trials of a sweep, for scripts."""
    return {
        "group": path.name,
        "path": str(path),
        "objective": list(search.objective),
        "best": [trial.name for trial in best_trials(search, trials)],
        "trials": [
            {
                "run": trial.name,
                "state": trial.state or "open",
                "values": trial.values,
                "params": dict(trial.params),
                "seconds": trial.seconds,
                "epochs": trial.epochs,
                "why": trial.why or None,
            }
            for trial in trials
        ],
    }
