"""A sweep as pictures, most of them by Optuna: trials, validations, keys, importance, front."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import atomic_write, make_folder
from ..common.printable import printable
from ..common.text import cut
from ..configs.write import flow
from ..training.groups.sampling import study
from . import fonts, style
from .plots import drawn
from .sweep_report import SweepReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRIALS, VALIDATIONS, PARALLEL = "trials.png", "validations.png", "parallel.png"
IMPORTANCE, FRONT = "importance.png", "front.png"
# The longest name of a key, a value and a sweep, and lines that a legend can name.
_WIDEST, _WIDEST_WORD, _WIDEST_TITLE, _MOST_NAMES = 28, 16, 60, 20


def draw_sweep(report: SweepReport, folder: Path) -> list[Path]:
    """Write the pictures for which there is something to draw. Raises OSError."""
    wanted: list[tuple[str, Callable[[SweepReport], Figure]]] = []
    if report.best:
        wanted += [(TRIALS, trials_figure), (PARALLEL, parallel_figure)]
    if any(report.validations.values()):
        wanted.append((VALIDATIONS, validations_figure))
    if report.importance:
        wanted.append((IMPORTANCE, importance_figure))
    if report.best and len(report.search.objective) > 1:
        wanted.append((FRONT, front_figure))
    make_folder(folder)
    for name, draw in wanted:
        atomic_write(folder / name, drawn(lambda draw=draw: draw(report)))  # type: ignore[misc]
    return [folder / name for name, _ in wanted]


def trials_figure(report: SweepReport) -> Figure:
    """The first objective by trial, with the best so far."""
    name = report.search.objective[0]
    figure, axes = _by_optuna("optimization_history", report, target_name=name)
    # Optuna counts from 0.
    axes.xaxis.set_major_formatter(lambda value, _: f"{value + 1:g}")
    _whole(axes.xaxis)
    _format(axes.yaxis, name)
    return figure


def validations_figure(report: SweepReport) -> Figure:
    """The validations of each trial by step."""
    figure, axes = _by_optuna("intermediate_values", report)
    name = "loss" if report.search.objective[0] == "loss" else "accuracy"
    axes.set_xlabel("step")
    axes.set_ylabel(f"{name} on validation")
    _whole(axes.xaxis)
    _format(axes.yaxis, name)
    shown = [trial.name for trial in report.trials if report.validations[trial.name]]
    if legend := axes.get_legend():
        legend.remove()
    if len(shown) <= _MOST_NAMES:
        axes.legend(axes.lines, shown, bbox_to_anchor=(1.02, 1.0), loc="upper left", fontsize=8)
    return figure


def parallel_figure(report: SweepReport) -> Figure:
    """A line for each complete trial through the first objective and the values of its keys."""
    name = report.search.objective[0]
    figure, axes = _by_optuna("parallel_coordinate", report, target_name=name)
    figure.set_size_inches(min(2.5 + 1.5 * len(report.search.dimensions), 24.0), 5.4)
    figure.axes[1].remove()  # the scale of the colours, where the last axis has its words
    for label in axes.get_xticklabels():
        label.set(rotation=20, ha="right", text=_text(label.get_text(), _WIDEST))
    for lines in axes.collections:  # the darker, the better; Optuna's palest are not seen
        lines.set_cmap("viridis" if lines.get_cmap().name.endswith("_r") else "viridis_r")
    _format(axes.yaxis, name)
    return figure


def front_figure(report: SweepReport) -> Figure:
    """Two objectives: all complete trials, and those that no other beats."""
    names = list(report.search.objective)
    figure, axes = _by_optuna("pareto_front", report, 2, target_names=names)
    for axis, name in zip((axes.xaxis, axes.yaxis), names, strict=True):
        _format(axis, name)
    return figure


def importance_figure(report: SweepReport) -> Figure:
    """A bar for each key, of each objective."""
    from matplotlib.figure import Figure

    keys = [_text(each.key, _WIDEST) for each in report.search.dimensions]
    size = (4.0 + 3.2 * len(report.importance), 0.42 * len(keys) + 1.1)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    columns = figure.subplots(1, len(report.importance), sharey=True, squeeze=False)[0]
    for axes, (objective, shares) in zip(columns, report.importance.items(), strict=True):
        # A key that older versions of Optuna leave out has no bar.
        known = [shares.get(each.key, math.nan) for each in report.search.dimensions]
        bars = axes.barh(keys, known, color=style.named(style.BLUE))
        axes.bar_label(bars, [f" {share:.0%}" for share in known])
        axes.set_xlim(0.0, 1.15 * max(shares.values(), default=1.0))
        axes.xaxis.set_major_formatter(_percent)
        axes.set_xlabel(f"importance for {objective}")
    return figure


def _by_optuna(
    plot: str, report: SweepReport, objectives: int = 1, **options: Any
) -> tuple[Figure, Axes]:
    """What Optuna draws of the trials and these first objectives, named as the sweep is."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    plt.switch_backend("Agg")  # pyplot makes the figures, and would look for a screen
    objective = report.search.objective[:objectives]
    column = 2 if objective[0] == "loss" else 1
    # Open trials, too, so that a trial's place is its number.
    ended = [
        replace(
            trial.ended(),
            values=trial.values and trial.values[:objectives],
            reports=tuple((p[0], p[column]) for p in report.validations[trial.name]),
        )
        for trial in report.trials
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls these functions experimental
        from optuna.visualization import matplotlib as drawing

        made = study(
            replace(report.search, objective=objective),
            ended,
            words=lambda value: _text(flow(value), _WIDEST_WORD),
        )
        axes: Axes = getattr(drawing, f"plot_{plot}")(made, **options)
    mpl.rcParams["savefig.bbox"] = "tight"  # legends and turned labels lie outside of the axes
    figure = axes.get_figure(root=True)
    assert figure is not None
    plt.close(figure)
    axes.set_title(_text(report.path.name, _WIDEST_TITLE))
    return figure, axes


def _text(name: str, widest: int) -> str:
    """In one line, without glyphs that the font lacks; a dollar sign begins no formula."""
    return cut(fonts.written(printable(name)), widest).replace("$", r"\$")


def _whole(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def _percent(value: float, _: object) -> str:
    return f"{100 * value:.4g}%"


def _format(axis: Any, name: str) -> None:
    if name == "accuracy":
        axis.set_major_formatter(_percent)
