"""``curves.png``: loss, accuracy and learning rate, drawn once at the end of a training."""

from __future__ import annotations

import csv
import io
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..common.files import atomic_write
from ..common.text import cut
from ..training.records.run_log import CSV

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = "curves.png"
_LONGEST_REASON = 200
_COLUMNS = ("epoch", "loss", "accuracy", "learning_rate")
_TRAIN, _VALIDATION, _RATE = "#4c78a8", "#e45756", "#54806a"
_BEST = "#30343b"

Points = dict[str, list[float]]
Splits = dict[Literal["train", "validation"], Points]


def draw_curves(run: Path, notice: Callable[[str], None]) -> Path | None:
    """Draw the run's ``metrics.csv``; returns the file, or None if nothing was drawn.

    Errors are reported to ``notice`` and not raised, because a training must not fail for its
    picture. Before the first line of the log there is nothing to draw.
    """
    try:
        points = read_metrics(run / CSV)
        if not any(points[split]["epoch"] for split in points):
            return None
        atomic_write(run / CURVES, _png(points, run.name))
    except Exception as error:
        reason = cut(f"{type(error).__name__}: {error}", _LONGEST_REASON)
        notice(f"{run / CURVES}: the curves were not drawn ({reason})")
        return None
    return run / CURVES


def read_metrics(path: Path) -> Splits:
    """The columns of ``metrics.csv`` by split; raises OSError, KeyError or ValueError."""
    points: Splits = {
        "train": {key: [] for key in _COLUMNS},
        "validation": {key: [] for key in _COLUMNS},
    }
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            split = points["train" if row["split"] == "train" else "validation"]
            for key in _COLUMNS:
                split[key].append(float(row[key]))
    return points


def figure_of(points: Splits, title: str) -> Figure:
    """The curves of these points, one below the other."""
    # If the home folder is not writable, matplotlib warns about its font cache.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    # A file needs neither a window system nor pyplot, which takes long to load.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 9.0), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    loss, accuracy, rate = figure.subplots(3, 1, sharex=True, height_ratios=(3, 3, 2))
    train, validation = points["train"], points["validation"]
    for axes, key in ((loss, "loss"), (accuracy, "accuracy")):
        _line(axes, train, key, _TRAIN, "training")
        _line(axes, validation, key, _VALIDATION, "validation")
        axes.set_ylabel(key)
        axes.legend(loc="best", frameon=False)
    _spread(loss, [*train["loss"], *validation["loss"]])
    accuracy.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%")
    _mark_best(accuracy, validation if validation["epoch"] else train)
    rates = sorted(
        (epoch, value)
        for split in points.values()
        for epoch, value in zip(split["epoch"], split["learning_rate"], strict=True)
    )
    rate.plot(*zip(*rates, strict=True), color=_RATE, linewidth=1.5, clip_on=False)
    # From zero, with room above: a nearly constant rate would have almost no margin.
    highest = max((value for _, value in rates if math.isfinite(value)), default=0.0)
    rate.set_ylim(0.0, 1.08 * highest if highest > 0.0 else 1.0)
    rate.set_ylabel("learning rate")
    rate.set_xlabel("epoch")
    for axes in (loss, accuracy, rate):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels()
    figure.suptitle(title, parse_math=False)
    return figure


def _png(points: Splits, title: str) -> bytes:
    buffer = io.BytesIO()
    # Without date and version, so that equal runs draw equal files.
    figure_of(points, title).savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _line(axes: Axes, points: Points, key: str, colour: str, label: str) -> None:
    if points["epoch"]:
        # A few points get markers; for many, the line alone is clearer.
        marker = "o" if len(points["epoch"]) <= 40 else None
        axes.plot(
            points["epoch"], points[key], color=colour, label=label, linewidth=1.5,
            marker=marker, markersize=3.5,
        )  # fmt: skip


def _mark_best(axes: Axes, points: Points) -> None:
    """A ring around the first of the highest accuracies, and its value beside it."""
    known = [(value, -index) for index, value in enumerate(points["accuracy"]) if value >= 0]
    if not known:
        return
    best, index = max(known)
    epoch = points["epoch"][-index]
    axes.plot([epoch], [best], "o", color=_BEST, markersize=9, markerfacecolor="none")
    # Below and left of the point there is no curve that rises to it, and the frame is far.
    axes.annotate(
        f"best {best:.2%}", (epoch, best), (-8, -16), textcoords="offset points", color=_BEST,
        ha="right" if epoch > max(points["epoch"]) / 4 else "left",
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
