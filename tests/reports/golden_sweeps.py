"""The pictures of a sweep: what Optuna is given, and what becomes of what it draws."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from dnnstack.configs.search import Dimension, Search
from dnnstack.many.journal import Trial
from dnnstack.reports.sweep_plots import (
    front_figure,
    importance_figure,
    parallel_figure,
    trials_figure,
    validations_figure,
)
from dnnstack.reports.sweep_report import SweepReport

from ..support.described import figure_text, said

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = ("$x$_y", "\u6f22" * 8, "exactly 16 signs", "seventeen letters", {"type": "a\nb"})
_NUMBERS = (5, 10**15 - 1, 10**15)
_KEYS = tuple(f"layers.convolution_{n}.kernel" for n in (10, 11))


def _report(*objective: str) -> SweepReport:
    """Of one objective, the keys differ only in what is cut off; of two, they fit exactly."""
    last = _KEYS if len(objective) == 1 else ("layers.nineteen_sign_9.key", "a.x", "b.x")
    search = Search(
        (
            Dimension("optimizer.lr", 1e-3, 1.0, log=True),
            Dimension("$a$", values=_NAMES),
            Dimension("n", values=_NUMBERS),
            *(Dimension(key, 1, 9, whole=True) for key in last),
        ),
        objective,
    )
    trials = [
        Trial(
            n,
            {"optimizer.lr": 0.1 / (n + 1), "$a$": _NAMES[n % 5], "n": _NUMBERS[n % 3]}
            | dict.fromkeys(last[: n + 1], n + 1),
            "complete",
            (0.5 + n / 16, 8.0 - n)[: len(objective)],
        )
        for n in range(7)
    ]
    trials[2] = replace(trials[2], state="pruned", values=None)
    trials.append(Trial(7, {}))
    seen = {t.name: ((10, 0.5, 2.0), (20, 0.75, t.number / 4)) for t in trials if t.number != 4}
    shares = {name: {"optimizer.lr": 0.75 / n, "$a$": 0.25} for n, name in enumerate(objective, 1)}
    best = sorted((t for t in trials if t.values), key=lambda t: t.values or ())[::-1]
    path = Path("a" * (61 - len(objective) // 2))
    found = {trial.name: seen.get(trial.name, ()) for trial in trials}
    return SweepReport(path, search, trials, best, shares, found)


def _told(study: Any) -> Iterator[str]:
    for trial in study.trials:
        values = trial.values or trial.state.name
        yield said(values=values, params=trial.params, seen=trial.intermediate_values)


def _drawn(draw: Callable[[SweepReport], Figure], report: SweepReport) -> str:
    """With a stand-in for Optuna, of which each version draws in another way."""
    from matplotlib import pyplot
    from matplotlib.collections import LineCollection
    from optuna.visualization import matplotlib as drawing

    told: list[str] = []

    def stand_in(plot: str) -> Callable[..., Any]:
        def drawn(study: Any, **options: Any) -> Any:
            warnings.warn("this is experimental", FutureWarning, stacklevel=1)
            told.extend([f"{plot} {options}", *_told(study)][: 1 if "parallel" in plot else None])
            figure, axes = pyplot.subplots()
            for trial in study.trials:
                if trial.intermediate_values:
                    axes.plot(*zip(*trial.intermediate_values.items(), strict=True))
            darkest = study.direction.name == "MAXIMIZE" if len(study.directions) == 1 else True
            axes.add_collection(LineCollection([], cmap="Blues" if darkest else "Blues_r"))
            if plot == "parallel_coordinate":
                axes.set_xticks([10, 20], ["a", "b"])
            axes.legend(["x"])
            for _ in range(2):
                figure.add_axes((0.1, 0.1, 0.1, 0.1))
            return axes

        return drawn

    with pytest.MonkeyPatch.context() as patch:
        for name in ("optimization_history", "intermediate_values", "parallel_coordinate"):
            patch.setattr(drawing, f"plot_{name}", stand_in(name))
        patch.setattr(drawing, "plot_pareto_front", stand_in("pareto_front"))
        figure = figure_text(lambda: draw(report))
        told.append(f"open figures: {pyplot.get_fignums()}")
    return "\n".join([*told, figure])


def _of_one() -> str:
    report = _report("accuracy")
    first = {name: seen[:1] for name, seen in report.validations.items()}
    search = replace(report.search, objective=("loss",))
    losses = replace(report, search=search, best=[], validations=first)
    drawn = [_drawn(draw, report) for draw in (trials_figure, parallel_figure, importance_figure)]
    drawn += [_drawn(validations_figure, each) for each in (report, losses)]
    return "".join([*drawn, _drawn(parallel_figure, losses)])


def _of_two() -> str:
    report = _report("accuracy", "seconds")
    return "".join(_drawn(draw, report) for draw in (front_figure, importance_figure))


SWEEPS: dict[str, Callable[[], str]] = {"pictures_of_sweep": _of_one, "front_of_sweep": _of_two}
