"""A sweep as pictures: its trials, their values beside each other, what matters, the front."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..common.files import atomic_write, make_folder
from ..common.printable import printable
from ..common.text import cut
from ..configs.search import Dimension, Search
from ..training.groups.journal import Trial
from . import style
from .plots import drawn
from .sweep_report import SweepReport
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
# A legend is read through no curve.
_BOXED: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.85}


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
        axes.legend(loc="best", fontsize=8, **_BOXED)
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
                label=_label(report.search, trial) if colour else None,
            )  # fmt: skip
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel(f"{name} on validation")
    _format(axes.yaxis, name)
    if name == "loss":
        lines = [[p[2] for p in points] for points in report.validations.values() if points]
        values = sorted(value for line in lines for value in line if value > 0)
        if values and values[-1] > 10 * values[0]:
            axes.set_yscale("log")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8, **_BOXED)


def parallel_figure(report: SweepReport) -> Figure:
    """Parallel coordinates: a line for each complete trial through the values of its keys."""
    search = report.search
    axes_of = [_Scale.of_key(each) for each in search.dimensions]
    done = [trial for trial in report.trials if trial.values is not None]
    axes_of += [
        _Scale.of_numbers(name, [(trial.values or ())[place] for trial in done])
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
    box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
    for x, scale in enumerate(axes_of):
        axes.axvline(x, color=_GREY, linewidth=0.8, zorder=1)
        for place, text in scale.ticks():
            axes.annotate(
                cut(printable(text), 16), (x, place), (-4, 0), textcoords="offset points",
                ha="right", va="center", fontsize=8, color=_INK, bbox=box, zorder=4,
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


class _Scale:
    """One axis: where a value stands between 0 and 1."""

    def __init__(
        self,
        name: str,
        low: float,
        high: float,
        log: bool,
        words: Sequence[str],
        steps: int = 0,
    ) -> None:
        self.name, self.words, self.log, self.steps = name, list(words), log, steps
        self.low, self.high = (math.log(low), math.log(high)) if log else (low, high)

    @classmethod
    def of_key(cls, each: Dimension) -> _Scale:
        words = [_short(value) for value in each.values]
        steps = 0 if words or not each.step or each.log else len(each.grid()) - 1
        return cls(each.key, each.low, each.high, each.log, words, steps)

    @classmethod
    def of_numbers(cls, name: str, values: Sequence[float]) -> _Scale:
        return cls(name, min(values), max(values), False, ())

    def place(self, value: Any) -> float:
        """Below the axis for a key that a trial does not have."""
        if value is None and not (self.words and "null" in self.words):
            return -0.1
        if self.words:
            at = self.words.index(_short(value))
            return 0.5 if len(self.words) == 1 else at / (len(self.words) - 1)
        number = math.log(value) if self.log else float(value)
        return (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5

    def ticks(self) -> list[tuple[float, str]]:
        if self.words:
            return [(self.place_of(i), word) for i, word in enumerate(self.words)]
        if self.high == self.low:
            return [(0.5, self._text(0.0))]
        shares = [0.0, 0.25, 0.5, 0.75, 1.0]
        if self.steps:
            # Only values that a trial can have.
            shares = sorted({round(share * self.steps) / self.steps for share in shares})
        return [(share, self._text(share)) for share in shares]

    def place_of(self, index: int) -> float:
        return 0.5 if len(self.words) == 1 else index / (len(self.words) - 1)

    def some_unset(self, trials: Sequence[Trial]) -> bool:
        """Whether a trial does not have this key."""
        own = [trial for trial in trials if self.name in trial.params]
        return 0 < len(own) < len(trials)

    def _text(self, share: float) -> str:
        value = self.low + share * (self.high - self.low)
        if self.log:
            return f"{math.exp(value):.2g}"
        if self.name in ("accuracy", "loss", "seconds"):
            return value_text(self.name, value)
        return f"{value:.4g}"


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
    xs, ys = zip(*[trial.values or () for trial in front], strict=True)
    # A point between two trials of the front is as good as the worse of both.
    better_right = one not in _LEAST
    axes.step(xs, ys, where="pre" if better_right else "post", color=_RED, linewidth=1.0, alpha=0.6)
    axes.plot(xs, ys, "o", color=_RED, markersize=6, label="no other trial beats it")
    for place, (trial, x, y) in enumerate(zip(front, xs, ys, strict=True)):
        if len(front) <= _MOST_NAMES:
            # By turns above and below, since neighbours may be close.
            axes.annotate(
                trial.name, (x, y), (7, (-11, 5)[place % 2]), textcoords="offset points",
                fontsize=8, color=_INK,
            )  # fmt: skip
    axes.margins(0.08)
    for axis, name in ((axes.xaxis, one), (axes.yaxis, two)):
        _format(axis, name)
        axis.set_label_text(f"{name} ({'less' if name in _LEAST else 'more'} is better)")
    axes.legend(loc="best", fontsize=9, **_BOXED)
    return figure


def _figure(report: SweepReport, width: float, height: float) -> Figure:
    """An empty figure with the name of the sweep."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(min(width, 24.0), min(height, 24.0)), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    title = cut(report.path.name, _WIDEST_TITLE)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, parse_math=False)
    return figure


def _format(axis: Any, name: str) -> None:
    if name == "accuracy":
        axis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")


def _label(search: Search, trial: Trial) -> str:
    pairs = zip(search.objective, trial.values or (), strict=True)
    return f"{trial.name}: {', '.join(value_text(name, value) for name, value in pairs)}"


def _short(value: Any) -> str:
    from ..configs.write import flow

    return f"{value:.4g}" if isinstance(value, float) else flow(value)


def _two_lines(name: str) -> str:
    """A key broken before its last part, so that neighbours do not overlap."""
    head, dot, tail = printable(name).rpartition(".")
    return f"{cut(head, 20)}{dot}\n{cut(tail, 20)}" if dot else name
