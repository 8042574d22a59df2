"""``scatter.png`` of numbers, truth against answer, and ``roc.png`` of questions; also as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.files import atomic_write
from ..common.text import cut
from ..training.inference.evaluate import Evaluation
from ..training.metrics import roc_curve
from ..training.records.formats.state import figure as written
from . import fonts, style
from .plots import drawn, wanted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SCATTER, ROC = "scatter", "roc"
_MOST = 9
_LONGEST = 24


def draw_targets(result: Evaluation, folder: Path) -> list[Path]:
    """Write the plot of an evaluation of numbers or questions, one panel for each of up to nine."""
    numbers = result.kind == "numbers"
    name, panel = (SCATTER, _scatter) if numbers else (ROC, _roc)
    folder.mkdir(parents=True, exist_ok=True)
    forms = dict.fromkeys([".png", ".svg", wanted(folder / name).suffix])
    for form in forms:
        atomic_write(folder / f"{name}{form}", drawn(lambda: panels(result, panel), form[1:]))
    return [folder / f"{name}{form}" for form in forms]


def panels(result: Evaluation, panel: Callable[[Axes, Any, Any], None]) -> Figure:
    """A figure of square panels; ``panel`` draws one."""
    from matplotlib.figure import Figure

    targets, answers = result.pairs or (np.zeros((0, 0)), np.zeros((0, 0)))
    count = min(len(result.classes), _MOST)
    across = min(count, 3)
    down = math.ceil(count / across)
    figure = Figure(figsize=(4.2 * across, 4.4 * down), dpi=110, layout="constrained")
    every = figure.subplots(down, across, squeeze=False).reshape(-1)
    for axes in every[count:]:
        axes.remove()
    outputs = zip(result.classes, result.measured.outputs, strict=True)
    for k, (axes, (label, found)) in enumerate(zip(every, outputs, strict=False)):
        panel(axes, targets[:, k], answers[:, k])
        key, said = ("r2", "R2") if result.kind == "numbers" else ("roc_auc", "AUC")
        title = cut(fonts.written(label), _LONGEST).replace("$", r"\$")
        axes.set_title(f"{title}: {said} {written(key, found[key])}", fontsize=10)
    figure.suptitle(f"{result.dataset}, {result.part}".replace("$", r"\$"), fontsize=11)
    return figure


def _scatter(axes: Axes, targets: Any, answers: Any) -> None:
    both = np.concatenate([targets, answers])
    ends = [float(both.min()), float(both.max())]
    axes.plot(ends, ends, color=style.named(style.GREY), linewidth=0.8)
    axes.scatter(targets, answers, s=9, alpha=0.5, color=style.named(style.BLUE), linewidths=0)
    axes.set_xlabel("truth")
    axes.set_ylabel("answer")


def _roc(axes: Axes, targets: Any, answers: Any) -> None:
    axes.plot([0, 1], [0, 1], color=style.named(style.GREY), linewidth=0.8)
    axes.plot(*roc_curve(targets > 0.5, answers), color=style.named(style.BLUE), linewidth=1.5)
    axes.set_xlabel("rate of false yes")
    axes.set_ylabel("rate of true yes")
