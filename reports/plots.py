"""``curves.png``: loss, accuracy and learning rate of a training, so far and at its end."""

from __future__ import annotations

import csv
import io
import logging
import math
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..common.errors import Warned
from ..common.files import atomic_write, open_regular, remove_abandoned
from ..common.text import cut
from ..training.records.formats.run_log import CSV
from . import fonts, style
from .rate_curve import rate_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = "curves.png"
_LONGEST_REASON = 200
_MEASURES = ("accuracy", "r2")
_TRAIN, _VALIDATION, _RATE = (style.named(c) for c in (style.BLUE, style.RED, style.GREEN))
_INK, _LINE = style.named(style.INK), style.named(style.LINE)
# matplotlib draws one figure at a time: its settings are those of the process.
_DRAWING = threading.Lock()
_STYLE: dict[Any, Any] = {
    "font.family": style.FONT,
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "svg.fonttype": "none",
    "svg.hashsalt": "dnnstack",
}

_UNSAID = {
    "png": ("Software",),
    "svg": ("Date", "Creator", "Format", "Type"),
    "pdf": ("CreationDate", "Creator", "Producer"),
}

Points = dict[str, list[float]]
Splits = dict[Literal["train", "validation"], Points]


def draw_curves(run: Path, notice: Callable[[str], None], durable: bool = True) -> Path | None:
    """Draw the run's ``metrics.csv``; returns the file, or None if nothing was drawn.

    ``durable`` is that of ``atomic_write``. Errors are reported to ``notice`` and not raised,
    because a training must not fail for its picture. Before the first line of the log there is
    nothing to draw.
    """
    try:
        points = read_metrics(run / CSV)
        if not any(points[split]["epoch"] for split in points):
            return None
        rates = rate_curve(run, _logged_rates(points))
        return save(run / CURVES, lambda: figure_of(points, run.name, rates), durable)
    except Exception as error:
        # The message of the system would name the file again.
        named = error.strerror if isinstance(error, OSError) else None
        reason = cut(named or f"{type(error).__name__}: {error}", _LONGEST_REASON)
        notice(Warned(f"{run / CURVES}: the curves were not drawn ({reason})"))
        return None


def read_metrics(path: Path) -> Splits:
    """The columns of ``metrics.csv`` by split; raises OSError, KeyError or ValueError."""
    with os.fdopen(open_regular(path), encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        measure = _MEASURES["r2" in (rows.fieldnames or ())]
        columns = ("step", "epoch", "loss", measure, "learning_rate")
        points: Splits = {
            "train": {key: [] for key in columns},
            "validation": {key: [] for key in columns},
        }
        for row in rows:
            split = points["train" if row["split"] == "train" else "validation"]
            for key in columns:
                split[key].append(float(row[key]))
    return points


def measure_of(points: Splits) -> str:
    """What is drawn beside the loss: accuracy, or R2 of numbers."""
    return _MEASURES["r2" in points["train"]]


def figure_of(points: Splits, title: str, rates: Sequence[tuple[float, float]] = ()) -> Figure:
    """The curves of these points, one below the other.

    rates: (epoch, rate) of all updates; by default those of the points.
    """
    # A file needs neither a window system nor pyplot, which takes long to load.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 9.0), dpi=110, layout="constrained")
    loss, accuracy, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 2))
    train, validation = _even(points["train"]), points["validation"]
    measure = measure_of(points)
    for axes, key in ((loss, "loss"), (accuracy, measure)):
        _line(axes, train, key, _TRAIN, "training")
        _line(axes, validation, key, _VALIDATION, "validation")
        axes.set_ylabel(key.replace("r2", "R2"))
    _spread(loss, [*train["loss"], *validation["loss"]])
    if measure == "accuracy":
        accuracy.yaxis.set_major_formatter(percent)
    _mark_best(accuracy, validation, measure)
    for axes in (loss, accuracy):
        legend_above(axes, 3)
    rates = rates or [(epoch, value) for _, epoch, value in _logged_rates(points)]
    rate.plot(*zip(*rates, strict=True), color=_RATE, linewidth=1.5, clip_on=False)
    # From zero, with room above: a nearly constant rate would have almost no margin.
    highest = max((value for _, value in rates if math.isfinite(value)), default=0.0)
    rate.set_ylim(0.0, 1.08 * highest if highest > 0.0 else 1.0)
    rate.set_ylabel("learning rate")
    rate.set_xlabel("epoch")
    figure.align_ylabels()
    figure.suptitle(fonts.written(title), x=0.01, ha="left", parse_math=False)
    return figure


def percent(value: float, _: object) -> str:
    """A share on an axis: ``97.5%``."""
    return f"{100 * value:.4g}%"


def _logged_rates(points: Splits) -> list[tuple[int, float, float]]:
    """(step, epoch, rate) of every line of the log, in the order of the steps."""
    return sorted(
        (int(step), epoch, value)
        for split in points.values()
        for step, epoch, value in zip(
            split["step"], split["epoch"], split["learning_rate"], strict=True
        )
    )


def wanted(path: Path) -> Path:
    """The path of a picture in the format that DNNSTACK_PLOTS_FORMAT says; PNG by default."""
    return path.with_suffix(f".{os.environ.get('DNNSTACK_PLOTS_FORMAT') or 'png'}")


def save(path: Path, draw: Callable[[], Figure], durable: bool = True) -> Path:
    """Write a figure in the wanted format; returns its path. Raises OSError."""
    path = wanted(path)
    atomic_write(path, drawn(draw, path.suffix[1:]), durable)
    remove_abandoned(path.parent)
    return path


def drawn(draw: Callable[[], Figure], form: str = "png") -> bytes:
    """A figure as PNG, SVG or PDF, in the style of this package."""
    # If the home folder is not writable, matplotlib warns about its font cache.
    log = logging.getLogger("matplotlib")
    with _DRAWING:
        level = log.level
        log.setLevel(logging.ERROR)
        try:
            import matplotlib

            # The settings of the user, or of the program that trains, are not ours.
            with matplotlib.rc_context():
                matplotlib.rcdefaults()
                matplotlib.rcParams.update(_STYLE)
                buffer = io.BytesIO()
                # Without date and version, so that equal runs draw equal files.
                draw().savefig(buffer, format=form, metadata=dict.fromkeys(_UNSAID[form]))
                return buffer.getvalue()
        finally:
            log.setLevel(level)


def _even(points: Points) -> Points:
    """The points of training, the last two as one if the last is of a shorter window.

    A training may end in the middle of a window of its log. The mean of a few batches has more
    noise than the others, and would put a kink at the end of the curve.
    """
    steps = [0.0, *points["step"]]
    if len(steps) < 3:
        return points
    earlier, first, last = steps[-3:]
    count, rest = first - earlier, last - first
    if not 0 < rest < count:
        return points
    merged = {key: values[:-1] for key, values in points.items()}
    for key in ("step", "epoch", "learning_rate"):
        merged[key][-1] = points[key][-1]
    for key in points.keys() & {"loss", *_MEASURES}:
        *_, a, b = points[key]
        merged[key][-1] = (count * a + rest * b) / (count + rest)
    return merged


def _line(axes: Axes, points: Points, key: str, colour: str, label: str) -> None:
    if points["epoch"]:
        # A few points get markers; for many, the line alone is clearer.
        marker = "o" if len(points["epoch"]) <= 40 else None
        axes.plot(
            points["epoch"], points[key], color=colour, label=label, linewidth=1.5,
            marker=marker, markersize=3.5,
        )  # fmt: skip


def _mark_best(axes: Axes, points: Points, measure: str) -> None:
    """A ring around the first of the highest accuracies, and its value in the legend."""
    finite = math.isfinite
    known = [(value, -index) for index, value in enumerate(points[measure]) if finite(value)]
    if not known:
        return
    best, index = max(known)
    epoch = points["epoch"][-index]
    axes.plot(
        [epoch], [best], "o", color=_INK, markersize=9, markerfacecolor="none",
        label=f"best {best:.2%}" if measure == "accuracy" else f"best {best:.4f}",
    )  # fmt: skip


def legend_above(axes: Axes, columns: int, **options: Any) -> None:
    """A legend above the panel, where no curve runs through it."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=columns, frameon=False,
        borderaxespad=0.2, **options,
    )  # fmt: skip


def _spread(axes: Axes, values: list[float]) -> None:
    """Use a logarithmic axis if the loss falls by more than a factor of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter

    finite = [value for value in values if math.isfinite(value)]
    if finite and 0.0 < 10.0 * min(finite) < max(finite):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
