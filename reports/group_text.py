"""The runs of a group as a table, with mean, deviation, minimum and maximum."""

from __future__ import annotations

from collections.abc import Sequence

from ..common.printable import paragraph, printable
from ..many.outcome import Outcome
from ..many.statistics import COLUMNS, GroupReport, Spread
from ..training.records.formats.state import figure, shown
from .tables import WIDTH, table
from .units import span_text

_TOGETHER = ("accuracy", "r2", "rmse", "mae")
_HEADS = ("best", "loss", "seconds", "steps")


def as_text(report: GroupReport, width: int = WIDTH) -> str:
    """Each run's last validation, its best one, and its time; then their statistics."""
    measure = report.measure
    heads = ("run", "R2" if measure == "r2" else measure, *_HEADS)
    rows: list[Sequence[object]] = [heads]
    for name, run in report.runs.items():
        rows.append(
            (name, *_cells(run, measure), run.step if run.finished else f"{run.step} so far")
        )
    if report.finished > 1:
        spreads = report.spreads
        for word in ("mean", "deviation", "minimum", "maximum"):
            cells = (_cell(name, _value(spreads.get(name), word), measure) for name in COLUMNS)
            rows.append((word, *cells, ""))
    lines = [
        f"{printable(report.path)}: {report.finished} of {report.planned} {_word(report)} finished",
        "",
        *table(rows, "<>", width),
    ]
    if (found := report.together) is not None:
        figures = ", ".join(shown(key, found[key]) for key in _TOGETHER if key in found)
        right = f"{found['correct']} of" if "correct" in found else "the answers to"
        lines += [
            "",
            f"together  {figures}  ({right} {found['count']} samples, each validated once)",
        ]
        if "accuracy_interval" in found:
            interval = span_text(found["accuracy_interval"])
            lines.append(f"          {interval}  (95% confidence interval)")
    return paragraph(lines)


def groups_text(
    reports: Sequence[GroupReport], width: int = WIDTH, states: Sequence[str] = ()
) -> str:
    """A table with one group per line; states: how far each has come, in a word.

    The trials of a search are different trainings, of which a mean says little.
    """
    words = ("best", "median", "mean", "deviation")
    rows: list[Sequence[object]] = [("group", "kind", "state", "finished", *words)]
    for place, each in enumerate(reports):
        spread = each.spreads.get("accuracy")
        best = _value(each.spreads.get("best_accuracy"), "maximum")
        alike = None if each.kind == "sweep" else spread
        found = (_value(spread, "median"), _value(alike, "mean"), _value(alike, "deviation"))
        state = states[place] if states else "-"
        shown = (figure(each.measure, value) for value in (best, *found))
        rows.append((each.path.name, each.kind, state, f"{each.finished}/{each.planned}", *shown))
    return paragraph(table(rows, "<<<>", width))


def _word(report: GroupReport) -> str:
    return "trials" if report.kind == "sweep" else report.kind


def _cells(run: Outcome, measure: str) -> list[str]:
    return [_cell(name, getattr(run, name), measure) for name in COLUMNS]


def _cell(name: str, value: float | None, measure: str) -> str:
    if value is None:
        return "-"
    if name in ("accuracy", "best_accuracy"):
        return figure(measure, value)
    return f"{value:.4f}" if name == "loss" else f"{value:.1f}"


def _value(spread: Spread | None, word: str) -> float | None:
    found: float | None = None if spread is None else getattr(spread, word)
    return found
