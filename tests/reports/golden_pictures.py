"""Every picture of a report, drawn from something small and fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
from dnnstack.datasets import ImageSet
from dnnstack.reports.compress_plots import mask_picture, weights_figure
from dnnstack.reports.contact_sheet import draw_sheet
from dnnstack.reports.evaluate_plots import confusion_picture, errors_picture
from dnnstack.reports.plots import Points, Splits, figure_of
from dnnstack.reports.sensitivity_report import figure_of as sensitivity_figure
from dnnstack.reports.staleness import figure_of as staleness_figure
from dnnstack.training.inference.evaluate import Evaluation
from dnnstack.training.inference.tally import Mistake

from ..support.described import figure_text, picture_text
from .golden_objects import evaluation, sensitivity


def _points(epochs: list[float], losses: list[float], accuracies: list[float]) -> Points:
    rates = [0.1 / (1 + i) for i in range(len(epochs))]
    steps = [10 * epoch for epoch in epochs]
    return {"step": steps, "epoch": epochs, "loss": losses, "accuracy": accuracies,
            "learning_rate": rates}  # fmt: skip


def _curves(*, wide: bool) -> str:
    losses = [2.3, 0.4, 0.05] if wide else [2.3, 1.4, 0.9]
    train = _points([1.0, 2.0, 3.0], losses, [0.3, 0.6, 0.7])
    validation = _points([1.0, 2.0, 3.0], [2.0, 1.5, 1.6], [0.25, 0.625, 0.625])
    points: Splits = {"train": train, "validation": validation}
    return figure_text(lambda: figure_of(points, "a run $1$"))


def _long_curves() -> str:
    """So many points that they have no marks; never right; rates of every step, all 0."""
    epochs = [float(i) for i in range(1, 42)]
    validation = _points(epochs[:40], [0.5] * 40, [0.0] * 40)
    points: Splits = {"train": _points(epochs, [1.0] * 41, [0.0] * 41), "validation": validation}
    return figure_text(lambda: figure_of(points, "long", [(0.0, 0.0), (41.0, 0.0)]))


def _weights() -> str:
    before = np.array([[-2.0, -1.0, 0.0, 0.5], [0.25, 1.0, 1.5, 2.0]], np.float32)
    shared = np.array([[-2.0, 0.0, 0.0, 0.0], [0.0, 1.0, 1.0, -2.0]], np.float32)
    return figure_text(
        lambda: weights_figure({"a": (before, shared), "a_block." * 5 + "b_$1$": (before, before)})
    )


def _mask(rows: int, columns: int) -> str:
    values = np.zeros((rows, columns), np.float32)
    values[0, :2] = values[-1, -1] = -1
    return picture_text(lambda: mask_picture(f"{'a_block.' * 5}dense_1.weight", values))


def _sheet() -> str:
    draw = np.random.default_rng(3)
    grey = draw.integers(0, 256, (18, 1, 20, 16), np.uint8)
    few = draw.integers(0, 256, (2, 3, 20, 16), np.uint8)
    none = np.zeros((0, 3, 20, 16), np.uint8)
    rows = [("grey", grey[:, [0, 0]]), ("red and blue", few), ("none", none)]
    return picture_text(lambda: draw_sheet("a sheet of 20", rows))


def _confusion(count: int, name: str = "{}") -> str:
    matrix = np.diag(np.arange(count)) * 20
    matrix[0, 1:3], matrix[1, 0] = (3, 1), 7
    return picture_text(lambda: confusion_picture(evaluation(matrix, name)))


def _errors() -> str:
    draw = np.random.default_rng(4)
    pixels = draw.integers(0, 256, (12, 1, 30, 20), np.uint8)
    found = _named_mistakes()
    images = ImageSet("animals/test", pixels, np.zeros(12, np.int32), found.classes)
    return picture_text(lambda: errors_picture(found, images))


def _named_mistakes() -> Evaluation:
    found = evaluation(np.array([[6, 2, 0], [1, 9, 0], [0, 9, 0]]))
    sources = ["/a/cat/1.png", "/a/dog/1.png", "/b/dog/1.png", "row 7: 0, 1, 2, 3, 4, 5, 6, 7, 8"]
    worst = tuple(
        Mistake(i, i % 3, (i + 1) % 3, 0.99 - i / 100, 0.005, sources[i] if i < 4 else "/c.png")
        for i in range(11)
    )
    return Evaluation(**{**vars(found), "worst": worst})


PICTURES: dict[str, Callable[[], str]] = {
    "curves_narrow": lambda: _curves(wide=False),
    "curves_wide": lambda: _curves(wide=True),
    "curves_long": _long_curves,
    "staleness": lambda: figure_text(lambda: staleness_figure(Counter({0: 6, 1: 3, 7: 1}), "a $")),
    "staleness_of_one_age": lambda: figure_text(lambda: staleness_figure(Counter({0: 6}), "b")),
    "sensitivity": lambda: figure_text(lambda: sensitivity_figure(sensitivity(2))),
    "sensitivity_of_many": lambda: figure_text(lambda: sensitivity_figure(sensitivity(25))),
    "weights": _weights,
    "mask": lambda: _mask(20, 30),
    "mask_of_squares": lambda: _mask(3, 1601),
    "contact_sheet": _sheet,
    "confusion_of_3": lambda: _confusion(3),
    "confusion_of_16": lambda: _confusion(16, "a long name, the {}th"),
    "confusion_of_40": lambda: _confusion(40, "name {}"),
    "errors": _errors,
}
