"""A sweep as pictures: its trials, their values beside each other, what matters, the front."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import atomic_write, make_folder
from ..common.printable import printable
from ..common.text import cut
from ..configs.search import Search
from ..many.journal import Trial
from . import fonts, style
from .plots import drawn, legend_above
from .sweep_report import SweepReport
from .sweep_scale import UNSET, Scale
from .sweep_text import value_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRIALS, PARALLEL, IMPORTANCE, FRONT = "trials.png", "parallel.png", "importance.png", "front.png"
_BLUE, _RED, _GREY, _LINE, _INK, _PALE = (
    style.named(c) for c in (style.BLUE, style.RED, style.GREY, style.LINE, style.INK, style.PALE)
)
# The longest name of a key, and trials of a front that have their names beside them.
_WIDEST, _WIDEST_TITLE, _MOST_NAMES = 28, 60, 15
# One for each of the best trials.
_COLOURS = tuple(
    style.named(c) for c in (style.RED, style.ORANGE, style.GREEN, style.BLUE, style.PURPLE)
)
_LEAST = {"loss", "seconds"}
# No line is seen behind a text.
_BEHIND: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}


def draw_sweep(report: SweepReport, folder: Path) -> list[Path]:
    """Write the pictures for which there is something to draw. Raises OSError."""
    wanted: list[tuple[str, Callable[[SweepReport], Figure]]] = []
    if report.best:
        wanted += [(TRIALS, trials_figure), (PARALLEL, parallel_figure)]
    if report.importance:
        wanted.append((IMPORTANCE, importance_figure))
    if report.best and len(report.search.objective) > 1:
        wanted.append((FRONT, front_figure))
    make_folder(folder)
    for name, draw in wanted:
        atomic_write(folder / name, drawn(lambda draw=draw: draw(report)))  # type: ignore[misc]
    return [folder / name for name, _ in wanted]


def trials_figure(report: SweepReport) -> Figure:
    """Each objective by trial with the best so far, and the validations of all trials."""
    names = report.search.objective
    figure = _figure(report, 8.5, 2.6 * len(names) + 4.4)
    heights = [*[2.6] * len(names), 4.0]
    rows = figure.subplots(len(names) + 1, 1, height_ratios=heights, squeeze=False)[:, 0]
    done = [trial for trial in report.trials if trial.values is not None]
    chosen = {trial.number: colour for trial, colour in zip(report.best, _COLOURS, strict=False)}
    for place, (axes, name) in enumerate(zip(rows, names, strict=False)):
        numbers = [trial.number + 1 for trial in done]
        values = [(trial.values or ())[place] for trial in done]
        pick = min if name in _LEAST else max
        sofar = [pick(values[: i + 1]) for i in range(len(values))]
        reached = [*numbers, len(report.trials)]
        axes.step(
            reached,
            [*sofar, sofar[-1]],
            where="post",
            color=_INK,
            linewidth=1.2,
            label="best so far",
        )
        axes.plot(numbers, values, "o", color=_BLUE, markersize=3.5, label="complete trial")
        ended = [t.number + 1 for t in report.trials if t.state in ("pruned", "failed")]
        if ended:
            # At the edge: they have no value.
            axes.plot(
                ended, [0.03] * len(ended), "x", color=_GREY, markersize=4, clip_on=False,
                transform=axes.get_xaxis_transform(), label="pruned or failed",
            )  # fmt: skip
        axes.set_ylabel(name)
        axes.set_xlabel("trial")
        axes.set_xlim(0.5, len(report.trials) + 0.5)
        axes.xaxis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        _format(axes.yaxis, name)
        legend_above(axes, 3, fontsize=8)
    _validations(rows[-1], report, chosen)
    return figure


def _validations(axes: Axes, report: SweepReport, chosen: dict[int, str]) -> None:
    """The validations of each trial, those of the best ones in colour."""
    from matplotlib.ticker import MaxNLocator

    name = "loss" if report.search.objective[0] == "loss" else "accuracy"
    column = 2 if name == "loss" else 1
    many = len(report.trials) > 60
    for trial in report.trials:
        points = report.validations[trial.name]
        colour = chosen.get(trial.number)
        if points:
            marker = "o" if len(points) == 1 else None
            axes.plot(
                [point[0] for point in points], [point[column] for point in points],
                color=colour or _PALE, linewidth=1.7 if colour else 0.6 if many else 0.9,
                marker=marker, markersize=3.5, zorder=3 if colour else 2,
            )  # fmt: skip
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.set_ylabel(f"{name} on validation")
    _format(axes.yaxis, name)
    if name == "loss":
        lines = [[p[2] for p in points] for points in report.validations.values() if points]
        values = sorted(value for line in lines for value in line if value > 0)
        if values and values[-1] > 10 * values[0]:
            axes.set_yscale("log")
    pick = min if name == "loss" else max
    for trial in report.best:
        # In the order of the ranks; a line ends with the last validation, which may be worse.
        points, colour = report.validations[trial.name], chosen.get(trial.number)
        if colour and points:
            best = pick(points, key=lambda point: point[column])
            last = value_text(name, points[-1][column])
            label = _label(report.search, trial, name, last)
            axes.plot([], [], color=colour, linewidth=1.7, label=label)
            axes.plot(
                best[0], best[column], "o", color=colour, markersize=8, markerfacecolor="none",
                zorder=4,
            )  # fmt: skip
    if axes.get_legend_handles_labels()[0]:
        axes.plot(
            [], [], "o", color=_INK, markersize=8, markerfacecolor="none", label=f"best {name}"
        )
        legend_above(axes, 3, fontsize=8)


def parallel_figure(report: SweepReport) -> Figure:
    """Parallel coordinates: a line for each complete trial through the values of its keys."""
    search = report.search
    axes_of = [Scale.of_key(each) for each in search.dimensions]
    done = [trial for trial in report.trials if trial.values is not None]
    axes_of += [
        Scale.of_numbers(name, [(trial.values or ())[place] for trial in done])
        for place, name in enumerate(search.objective)
    ]
    figure = _figure(report, max(7.0, 1.7 * len(axes_of) + 1.2), 5.4)
    axes = figure.subplots()
    axes.grid(False)
    last = axes_of[len(search.dimensions)]
    least = search.objective[0] in _LEAST

    def good(trial: Trial) -> float:
        place = last.place((trial.values or (0.0,))[0])
        return 1.0 - place if least else place

    import matplotlib as mpl

    map_ = mpl.colormaps["viridis_r"]
    best = {trial.number for trial in report.best[: 1 if len(search.objective) == 1 else None]}
    for trial in sorted(done, key=lambda one: (one.number in best, good(one))):
        chosen = [trial.params.get(each.key) for each in search.dimensions]
        points: list[Any] = [*chosen, *(trial.values or ())]
        ys = [scale.place(value) for scale, value in zip(axes_of, points, strict=True)]
        first = trial.number in best
        axes.plot(
            range(len(ys)), ys, color=_RED if first else map_(good(trial)),
            linewidth=2.2 if first else 1.0, alpha=1.0 if first else 0.75, zorder=3 if first else 2,
            marker="o", markersize=3.0, clip_on=False,
        )  # fmt: skip
    for x, scale in enumerate(axes_of):
        axes.axvline(x, color=_GREY, linewidth=0.8, zorder=1)
        unset = [(UNSET, "unset")] if scale.some_unset(done) else []
        for place, text in [*unset, *scale.ticks()]:
            axes.annotate(
                cut(fonts.written(text), 16), (x, place), (-4, 0), textcoords="offset points",
                ha="right", va="center", fontsize=8, color=_INK, bbox=_BEHIND, zorder=4,
                parse_math=False,
            )  # fmt: skip
    axes.set_xticks(range(len(axes_of)), [_two_lines(scale.name) for scale in axes_of], fontsize=9)
    for label in axes.get_xticklabels():
        label.set_parse_math(False)
    axes.set_yticks([])
    axes.set_xlim(-0.55, len(axes_of) - 0.8)
    axes.set_ylim(-0.14 if any(scale.some_unset(done) for scale in axes_of) else -0.03, 1.03)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    what = "the best trial" if len(best) == 1 else "trials that no other beats"
    axes.set_title(
        f"red: {what}; otherwise the darker, the better", loc="left", fontsize=9, color=_GREY
    )
    return figure


def importance_figure(report: SweepReport) -> Figure:
    """A bar for each key, of each objective."""
    count = len(report.search.dimensions)
    figure = _figure(report, 4.0 + 3.2 * len(report.importance), 0.42 * count + 1.1)
    columns = figure.subplots(1, len(report.importance), sharey=True, squeeze=False)[0]
    first = next(iter(report.importance.values()))
    keys = sorted((each.key for each in report.search.dimensions), key=lambda k: first.get(k, 0.0))
    names = [cut(printable(key), _WIDEST) for key in keys]
    for axes, (objective, shares) in zip(columns, report.importance.items(), strict=True):
        values = [shares.get(key, 0.0) for key in keys]
        axes.barh(range(len(keys)), values, color=_BLUE, height=0.62)
        for y, value in enumerate(values):
            known = keys[y] in shares
            axes.annotate(
                f"{value:.0%}" if known else "unknown", (value, y), (4, 0),
                textcoords="offset points", va="center", fontsize=9,
            )  # fmt: skip
        axes.set_yticks(range(len(keys)), names)
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
        axes.set_xlim(0.0, 1.15 * max(values) or 1.0)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
        axes.set_xlabel(f"importance for {objective}")
        axes.grid(False, axis="y")
    return figure


def front_figure(report: SweepReport) -> Figure:
    """Two objectives: all complete trials, and those that no other beats."""
    one, two = report.search.objective
    figure = _figure(report, 7.5, 5.4)
    axes = figure.subplots()
    done = [trial.values or () for trial in report.trials if trial.values is not None]
    axes.plot(*zip(*done, strict=True), "o", color=_PALE, markersize=4.5, label="beaten")
    front = sorted(report.best, key=lambda trial: trial.values or ())
    all_x = [values[0] for values in done]
    xs, ys = zip(*[trial.values or () for trial in front], strict=True)
    # A point between two trials of the front is as good as the worse of both.
    better_right = one not in _LEAST
    axes.step(xs, ys, where="pre" if better_right else "post", color=_RED, linewidth=1.0, alpha=0.6)
    axes.plot(xs, ys, "o", color=_RED, markersize=6, zorder=4, label="no other trial beats it")
    for place, (trial, x, y) in enumerate(zip(front, xs, ys, strict=True)):
        if len(front) <= _MOST_NAMES:
            # By turns above and below, since neighbours may be close; into the picture at its end.
            left = x > (min(all_x) + 3 * max(all_x)) / 4
            axes.annotate(
                trial.name, (x, y), (-7 if left else 7, (-11, 5)[place % 2]),
                textcoords="offset points", ha="right" if left else "left", fontsize=8, color=_INK,
                bbox=_BEHIND, zorder=3,
            )  # fmt: skip
    axes.margins(0.08)
    for axis, name in ((axes.xaxis, one), (axes.yaxis, two)):
        _format(axis, name)
        axis.set_label_text(f"{name} ({'less' if name in _LEAST else 'more'} is better)")
    legend_above(axes, 2, fontsize=9)
    return figure


def _figure(report: SweepReport, width: float, height: float) -> Figure:
    """An empty figure with the name of the sweep."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(min(width, 24.0), min(height, 24.0)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    title = cut(fonts.written(report.path.name), _WIDEST_TITLE)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, parse_math=False)
    return figure


def _format(axis: Any, name: str) -> None:
    if name == "accuracy":
        axis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")


def _label(search: Search, trial: Trial, drawn_name: str, last: str) -> str:
    """``trial-9: best 80.00%, last 78.75%``; the last one only where it is another."""
    found = []
    for name, value in zip(search.objective, trial.values or (), strict=True):
        text = value_text(name, value)
        found.append(f"{text} s" if name == "seconds" else f"best {text}")
        if name == drawn_name and last != text:
            found.append(f"last {last}")
    return f"{trial.name}: {', '.join(found)}"


def _two_lines(name: str) -> str:
    """A key broken before its last part, so that neighbours do not overlap."""
    head, dot, tail = printable(name).rpartition(".")
    return f"{cut(head, 20)}{dot}\n{cut(tail, 20)}" if dot else name
