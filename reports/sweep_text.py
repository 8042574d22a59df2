"""The trials of a sweep as text: each when it ends, and all, the best first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..common.cells import cells, wrapped
from ..common.printable import paragraph, printable
from ..configs.search import Search
from ..configs.write import flow
from ..many.journal import Trial
from ..many.sampling import ENOUGH
from ..many.sweeping import best_trials
from ..training.records.formats.state import figure
from .sweep_report import SweepReport
from .tables import WIDTH, table

_SHOWN = 20


def trial_line(search: Search, trial: Trial, trials: Sequence[Trial]) -> str:
    """How a trial ended, its values, and whether it is among the best of ``trials``."""
    found = best_trials(search, trials)
    shown = found[:1] if len(search.objective) == 1 else found
    best = any(trial.number == one.number for one in shown)
    why = "; ".join(line.strip() for line in trial.why.splitlines())
    ended = _ended(search, trial) if trial.values is not None else f"{trial.state}: {why}"
    mark = " (best)" if len(search.objective) == 1 else " (on the Pareto front)"
    return printable(f"{trial.name}: {ended}{mark if best else ''}; {_params(search, trial)}")


def short_names(keys: Sequence[str]) -> dict[str, str]:
    """Each key by its last parts, as many as tell it from the others: ``lr``, ``dense_1.units``."""
    found = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts)))
        alone = (end for end in ends if sum(f".{one}".endswith(f".{end}") for one in keys) == 1)
        found[key] = next(alone, key)
    return found


def as_text(path: Path, search: Search, trials: Sequence[Trial], width: int = WIDTH) -> str:
    """How many trials ended how, and the best ones with their values."""
    return paragraph(_best(path, search, trials, width))


def _best(path: Path, search: Search, trials: Sequence[Trial], width: int) -> list[str]:
    shown = best_trials(search, trials)
    lines = [_counts(path, trials)]
    if shown:
        lines += ["", *_table(search, shown[:_SHOWN], width)]
    if len(shown) > _SHOWN:
        lines.append(f"and {len(shown) - _SHOWN} more; --json has them all")
    complete = sum(trial.values is not None for trial in trials)
    if len(search.objective) > 1 and shown:
        lines += [
            f"the Pareto front, {len(shown)} of {complete} complete trials: no other one is better "
            "in both objectives;",
            f"dnnstack runs --sweep {printable(path.name)} lists all",
        ]
    return lines


def listed(path: Path, search: Search, trials: Sequence[Trial], width: int = WIDTH) -> str:
    """All trials in the order of their numbers, with the state of each."""
    rows = _table(search, trials, width, states=True)
    return paragraph([_counts(path, trials), *(["", *rows] if trials else [])])


def report_text(report: SweepReport, width: int = WIDTH) -> str:
    """The best trials, and how much each key matters."""
    search = report.search
    lines = _best(report.path, search, report.trials, width)
    if report.importance:
        heads = [
            f"importance for {name}" if len(search.objective) > 1 else "importance"
            for name in report.importance
        ]
        shares = list(report.importance.values())
        keys = sorted((each.key for each in search.dimensions), key=lambda k: -shares[0].get(k, 0))
        rows: list[Sequence[object]] = [("key", *heads)]
        for key in keys:
            rows.append((key, *(_share(each.get(key)) for each in shares)))
        lines += ["", *table(rows, "<>", width)]
    elif 0 < sum(trial.values is not None for trial in report.trials) < ENOUGH:
        lines += ["", f"the importance of keys needs {ENOUGH} complete trials"]
    if report.best_config is not None:
        lines += ["", f"best config {printable(report.best_config)}"]
    return paragraph(lines)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _counts(path: Path, trials: Sequence[Trial]) -> str:
    states = [trial.state or "open" for trial in trials]
    counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    noun = "trial" if len(trials) == 1 else "trials"
    return f"{printable(path)}: {len(trials)} {noun}, {', '.join(counts) or 'none'}"


def _table(search: Search, trials: Sequence[Trial], width: int, states: bool = False) -> list[str]:
    keys = [each.key for each in search.dimensions]
    state = ["state"] if states else []
    heads = short_names(keys)
    rows: list[Sequence[object]] = [("trial", *state, *search.objective, *heads.values())]
    for trial in trials:
        values = trial.values or [None] * len(search.objective)
        pairs = zip(search.objective, values, strict=True)
        shown = ("-" if value is None else value_text(name, value) for name, value in pairs)
        chosen = (_short(trial.params[key]) if key in trial.params else "-" for key in keys)
        rows.append((trial.name, *[trial.state or "open" for _ in state], *shown, *chosen))
    align, names = "<<>" if states else "<>", dict.fromkeys(range(len(rows[0])), 1)
    lines = table(rows, align, width, names, whole_heads=True)
    if max(map(cells, lines)) <= width:
        return lines
    # Too many keys for a table: a paragraph for each trial.
    return _paragraphs(rows, 1 + len(state), 1 + len(state) + len(search.objective), width)


def _paragraphs(rows: Sequence[Sequence[object]], named: int, first: int, width: int) -> list[str]:
    """Rows as text, below their heads: objectives from column ``named``, keys from ``first``."""
    heads, *trials = rows
    apart = max(len(str(row[0])) for row in trials) + 2
    lines: list[str] = []
    for row in trials:
        pairs = [f"{h} {cell}" for h, cell in zip(heads, row, strict=True) if cell != "-"]
        said = len(pairs) - sum(cell != "-" for cell in row[first:])
        parts = [*map(str, row[1:named]), *pairs[named:said]]
        line = f"{row[0]:<{apart}}{', '.join(parts)}; {', '.join(pairs[said:])}"
        lines += wrapped(printable(line), width, apart)
    return lines


def _ended(search: Search, trial: Trial) -> str:
    values = zip(search.objective, trial.values or (), strict=True)
    return ", ".join(f"{name} {value_text(name, value)}" for name, value in values)


def _params(search: Search, trial: Trial) -> str:
    names = short_names([each.key for each in search.dimensions])
    return ", ".join(f"{names.get(key, key)} {_short(v)}" for key, v in trial.params.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else flow(value)


def value_text(name: str, value: float) -> str:
    """A value of an objective, as people read it."""
    return f"{value:.2f}" if name == "seconds" else figure(name, value)
