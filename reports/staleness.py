"""``staleness.png``: how old the gradients of an asynchronous training were."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..common.errors import Warned
from ..common.files import regular_lines
from ..common.text import cut
from ..training.records.formats.run_log import LOG, LONGEST
from . import fonts, style
from .plots import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STALENESS = "staleness.png"
_LONGEST_REASON = 200


def draw_staleness(run: Path, notice: Callable[[str], None]) -> Path | None:
    """Draw the histogram of a run's log; returns the file, or None if there is none to draw.

    Errors are reported to ``notice`` and not raised: a training must not fail for its picture.
    """
    try:
        counts = read_staleness(run / LOG)
        if not counts:
            return None
        return save(run / STALENESS, lambda: figure_of(counts, run.name))
    except Exception as error:
        reason = cut(f"{type(error).__name__}: {error}", _LONGEST_REASON)
        notice(Warned(f"{run / STALENESS}: the staleness was not drawn ({reason})"))
        return None


def read_staleness(path: Path) -> Counter[int]:
    """The updates of a log by their staleness: the updates between its parameters and its own."""
    found: Counter[int] = Counter()
    for line in regular_lines(path, LONGEST):
        for age, count in json.loads(line).get("staleness", {}).items():
            found[int(age)] += int(count)
    return found


def mean(counts: Counter[int]) -> float:
    """The mean staleness of all updates."""
    return sum(age * count for age, count in counts.items()) / max(counts.total(), 1)


def figure_of(counts: Counter[int], title: str) -> Figure:
    """The histogram, with its mean."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(8.0, 4.0), dpi=110, layout="constrained")
    axes = figure.subplots()
    ages = sorted(counts)
    shares = [100 * counts[age] / counts.total() for age in ages]
    axes.bar(ages, shares, width=0.8, color=style.named(style.BLUE))
    axes.set_xlabel("staleness: updates by others since the parameters of the gradient")
    axes.set_ylabel("share of the updates, %")
    # With a single age, too, the axis has whole numbers and the bar its width.
    axes.set_xlim(-0.6, max(ages[-1], 4) + 0.6)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(axis="x", visible=False)
    named = f"{title}: {counts.total():,} updates, staleness {mean(counts):.2f} on average"
    figure.suptitle(fonts.written(named), x=0.01, ha="left", parse_math=False)
    return figure
