"""A sweep as pictures, most of them by Optuna: trials, validations, keys, importance, front."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import make_folder
from ..common.options import is_number
from ..common.printable import printable
from ..common.targets import METRICS
from ..common.text import cut
from ..configs.write import flow
from ..many.sampling import Ended, study
from . import fonts, style
from .plots import percent, save
from .sweep_report import SweepReport
from .sweep_text import short_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRIALS, VALIDATIONS, PARALLEL = "trials.png", "validations.png", "parallel.png"
IMPORTANCE, FRONT = "importance.png", "front.png"
# The longest name of a key, which Optuna would cut itself, of a value and of a sweep.
_WIDEST, _WIDEST_WORD, _WIDEST_TITLE = 19, 16, 60
_LARGEST = 10**15
"""Numbers of a list that are longer are drawn as words."""
# One for each of the best trials.
_COLOURS = tuple(
    style.named(c) for c in (style.RED, style.ORANGE, style.GREEN, style.BLUE, style.PURPLE)
)
_PALE = style.named(style.PALE)


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
    return [
        save(folder / name, lambda draw=draw: draw(report))  # type: ignore[misc]
        for name, draw in wanted
    ]


def trials_figure(report: SweepReport) -> Figure:
    """The first objective by trial, with the best so far."""
    name = report.search.objective[0]
    figure, axes = _by_optuna("optimization_history", report, target_name=name)
    for line in axes.lines:
        line.set_drawstyle("steps-post")
    _whole(axes.xaxis)
    _format(axes.yaxis, name)
    return figure


def validations_figure(report: SweepReport) -> Figure:
    """The validations of each trial by step, those of the best ones in colour."""
    figure, axes = _by_optuna("intermediate_values", report)
    asked = report.search.objective[0]
    name = "loss" if asked == "loss" else "R2" if asked in METRICS["numbers"] else "accuracy"
    axes.set_xlabel("step")
    axes.set_ylabel(f"{name} on validation")
    _whole(axes.xaxis)
    _format(axes.yaxis, name)
    shown = [trial.name for trial in report.trials if report.validations[trial.name]]
    best = [trial.name for trial in report.best if trial.name in shown][: len(_COLOURS)]
    lines = dict(zip(shown, axes.lines, strict=True))
    for line in axes.lines:
        line.set(color=_PALE, linewidth=0.8)
    for one, colour in zip(best, _COLOURS, strict=False):
        lines[one].set(color=colour, linewidth=1.7, zorder=3)
    if legend := axes.get_legend():
        legend.remove()
    if best:
        handles = [lines[one] for one in best]
        axes.legend(handles, best, bbox_to_anchor=(1.02, 1.0), loc="upper left", fontsize=8)
    return figure


def parallel_figure(report: SweepReport) -> Figure:
    """A line for each complete trial through the first objective and the values of its keys."""
    name = report.search.objective[0]
    figure, axes = _by_optuna("parallel_coordinate", report, target_name=name)
    figure.set_size_inches(min(2.5 + 1.5 * len(report.search.dimensions), 24.0), 5.4)
    # The scale of the colours, where the last axis has its words. Before version 5 Optuna leaves
    # out trials that lack a key, and draws nothing if all do.
    for scale in figure.axes[1:2]:
        scale.remove()
    for label in axes.get_xticklabels():
        label.set(rotation=20, ha="right")
    for lines in axes.collections:  # the darker, the better; Optuna's palest are not seen
        lines.set_cmap("viridis" if lines.get_cmap().name.endswith("_r") else "viridis_r")
    _format(axes.yaxis, name)
    figure.draw_without_rendering()  # which makes the labels; no line is seen behind them
    for each in figure.axes:
        for label in each.get_yticklabels(which="both"):
            label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0})
    return figure


def front_figure(report: SweepReport) -> Figure:
    """Two objectives: all complete trials, and those that no other beats."""
    names = list(report.search.objective)
    figure, axes = _by_optuna("pareto_front", report, 2, target_names=names)
    for axis, name in zip((axes.xaxis, axes.yaxis), names, strict=True):
        _format(axis, name)
    return figure


def importance_figure(report: SweepReport) -> Figure:
    """A bar for each key, of each objective; what matters most for the first one is above."""
    from matplotlib.figure import Figure

    first, names = next(iter(report.importance.values())), _shown_keys(report)
    ordered = sorted(names, key=lambda key: first.get(key, 0.0))
    keys = [names[key] for key in ordered]
    size = (4.0 + 3.2 * len(report.importance), 0.42 * len(keys) + 1.1)
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    columns = figure.subplots(1, len(report.importance), sharey=True, squeeze=False)[0]
    for axes, (objective, shares) in zip(columns, report.importance.items(), strict=True):
        # A key that older versions of Optuna leave out has no bar.
        known = [shares.get(key, math.nan) for key in ordered]
        bars = axes.barh(keys, known, color=style.named(style.BLUE))
        axes.bar_label(bars, [f" {share:.0%}" for share in known])
        axes.set_xlim(0.0, 1.15 * max(shares.values(), default=1.0))
        axes.xaxis.set_major_formatter(percent)
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
    keys = _shown_keys(report)
    # Optuna counts from 0, people from 1. Open trials, too, so that a trial's place is its number.
    ended = [Ended({}, None)]
    ended += [
        replace(
            trial.ended(),
            params={keys[key]: value for key, value in trial.params.items()},
            values=trial.values and trial.values[:objectives],
            reports=tuple((p[0], p[column]) for p in report.validations[trial.name]),
        )
        for trial in report.trials
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls these functions experimental
        from optuna.visualization import matplotlib as drawing

        made = study(
            replace(
                report.search,
                objective=objective,
                dimensions=tuple(
                    replace(each, key=keys[each.key]) for each in report.search.dimensions
                ),
            ),
            ended,
            words=_word,
        )
        # Axes of a key have their line, and those of the others no grid.
        mpl.rcParams.update({"axes.grid": False, "axes.spines.right": True})
        axes: Axes = getattr(drawing, f"plot_{plot}")(made, **options)
    mpl.rcParams["savefig.bbox"] = "tight"  # legends and turned labels lie outside of the axes
    figure = axes.get_figure(root=True)
    assert figure is not None
    plt.close(figure)
    axes.set_title(_text(report.path.name, _WIDEST_TITLE))
    return figure, axes


def _shown_keys(report: SweepReport) -> dict[str, str]:
    """Each key as it is drawn: short, and another one than all others."""
    names = short_names([each.key for each in report.search.dimensions])
    texts = [_text(name, _WIDEST) for name in names.values()]
    if len({*texts}) < len(texts):
        cuts = [_text(name, _WIDEST - 5) for name in names.values()]
        texts = [f"{place}: {text}" for place, text in enumerate(cuts, 1)]
    return dict(zip(names, texts, strict=True))


def _word(value: Any) -> Any:
    """A value of a list; Optuna puts numbers into their order."""
    if is_number(value) and abs(value) < _LARGEST:
        return value
    return _text(flow(value), _WIDEST_WORD)


def _text(name: str, widest: int) -> str:
    """In one line, without glyphs that the font lacks; a dollar sign begins no formula."""
    return cut(fonts.written(printable(name)), widest).replace("$", r"\$")


def _whole(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def _format(axis: Any, name: str) -> None:
    if name == "accuracy":
        axis.set_major_formatter(percent)
