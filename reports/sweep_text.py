"""The trials of a sweep as text: each when it ends, and all, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..common.printable import paragraph, printable
from ..configs.search import Search
from ..configs.write import flow
from ..training.groups.journal import Trial
from ..training.groups.sweeping import Sweep, best_trials
from .tables import table

WIDTH = 80
_SHOWN = 20


def trial_line(search: Search, trial: Trial, best: bool) -> str:
    """How a trial ended, and its values."""
    ended = _ended(search, trial) if trial.values is not None else f"{trial.state}: {trial.why}"
    return printable(f"{trial.name}: {ended}{' (best)' if best else ''}; {_params(trial)}")


def as_text(sweep: Sweep, width: int = WIDTH) -> str:
    """How many trials ended how, and the best ones with their values."""
    trials = sweep.journal.read()
    states = [trial.state or "open" for trial in trials]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    shown = best_trials(sweep.search, trials)
    keys = [each.key for each in sweep.search.dimensions]
    rows: list[Sequence[object]] = [("trial", *sweep.search.objective, *keys)]
    for trial in shown[:_SHOWN]:
        values = zip(sweep.search.objective, trial.values or (), strict=True)
        cells = (_value(name, value) for name, value in values)
        chosen = (_short(trial.params[key]) if key in trial.params else "-" for key in keys)
        rows.append((trial.name, *cells, *chosen))
    lines = [f"{printable(sweep.path)}: {len(trials)} trials, {', '.join(counts) or 'none'}"]
    if shown:
        lines += ["", *table(rows, "<>", width, dict.fromkeys(range(len(rows[0])), 1))]
    if len(shown) > _SHOWN:
        lines.append(f"and {len(shown) - _SHOWN} more; --json has them all")
    return paragraph(lines)


def _ended(search: Search, trial: Trial) -> str:
    values = zip(search.objective, trial.values or (), strict=True)
    return ", ".join(f"{name} {_value(name, value)}" for name, value in values)


def _params(trial: Trial) -> str:
    return ", ".join(f"{key} {_short(value)}" for key, value in trial.params.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else flow(value)


def _value(name: str, value: float) -> str:
    if name == "accuracy":
        return f"{value:.2%}"
    return f"{value:.4f}" if name == "loss" else f"{value:.2f}"
