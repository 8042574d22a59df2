"""Samples of a data set as the network sees them, also augmented, on a contact sheet."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backends.reference.backend import ReferenceBackend
from ..common.random import key, permutation
from ..graph.graph import DType, Graph
from ..training.augmentation import gather, mixings
from .contact_sheet import COLUMNS, draw_sheet, reduced, reduction, write_png
from .data_report import DataReport
from .fonts import drawable

_LONGEST_TITLE = 24
_MANY_CLASSES = 20
# The most pixels that are read in all, and at a time; all channels of a pixel count as one.
_LOOKED_AT, _AT_A_TIME = 1 << 28, 1 << 22


def save_samples(report: DataReport, seed: int, path: Path) -> None:
    """Write the sheet of ``samples`` to a PNG file. Raises DatasetError if that fails."""
    count = len(report.train)
    title = f"{report.images.name}: {count} training pictures, as the network sees them"
    if (smaller := _smaller(report)) > 1:
        title += f", reduced {smaller} times"
    write_png(draw_sheet(title, samples(report, seed)), path)


def samples(report: DataReport, seed: int) -> list[tuple[str, NDArray[np.uint8]]]:
    """Two rows of training pictures for each class, or one if there are more than 20 classes.

    With augmentation it is one row, followed by the same pictures as they are in the first two
    epochs. The seed chooses the pictures. They pass through the network's input as in training, and
    are scaled back to pixels. If there are many classes of large pictures, there are fewer samples,
    and all are reduced. Returns titles with (n, C, H, W) uint8.
    """
    images, classes = report.images, report.images.classes
    order = report.train[permutation(key(seed, "contact sheet"), 0, len(report.train))]
    _, height, width = report.shape
    lines = _lines(report)
    most = max(_LOOKED_AT // (height * width * len(classes) * lines), 1)
    count = COLUMNS * (1 if report.augment else lines) if most >= COLUMNS else most
    smaller = _smaller(report)
    at_a_time = max(_AT_A_TIME // (height * width), 1)

    def shown(chosen: NDArray[np.int32], epoch: int | None) -> NDArray[np.uint8]:
        if not len(chosen):
            return np.zeros((0, *report.shape), np.uint8)[..., ::smaller, ::smaller]
        parts = []
        for begin in range(0, len(chosen), at_a_time):
            part = chosen[begin : begin + at_a_time]
            if epoch is None:
                x = report.scaling(images.images[part])
            else:
                x = _input(report, seed, part, epoch)
            parts.append(reduced(_pixels(report, x), smaller))
        return np.concatenate(parts)

    picked = [order[images.labels[order] == label][:count] for label in range(len(classes))]
    ends = np.cumsum([len(each) for each in picked])[:-1]
    # All classes together: what is mixed into a picture depends on its place among them.
    together = np.concatenate(picked)
    epochs = (None, 0, 1) if report.augment else (None,)
    views = [np.split(shown(together, epoch), ends) for epoch in epochs]
    rows = []
    for name, plain, *augmented in zip(
        drawable(tuple(classes), _LONGEST_TITLE), *views, strict=True
    ):
        rows.append((name, plain))
        if len(plain):
            rows += [(f"epoch {epoch}", view) for epoch, view in enumerate(augmented, 1)]
    return rows


def _lines(report: DataReport) -> int:
    """The number of rows for each class on the sheet."""
    return 3 if report.augment else 2 if len(report.images.classes) <= _MANY_CLASSES else 1


def _smaller(report: DataReport) -> int:
    return reduction(max(report.shape[1:]), _lines(report) * len(report.images.classes))


def _input(
    report: DataReport, seed: int, chosen: NDArray[np.int32], epoch: int
) -> NDArray[np.float32]:
    """The network's input for these pictures in an epoch, counted from 0: (n, C, H, W).

    They are mixed as the first ones of the epoch would be, with any pictures to train on.
    """
    graph, count = Graph("samples", len(chosen), seed=seed), len(chosen)
    mixed = bool(mixings(report.augment))
    wide = (len(report.images.classes),) if mixed else ()
    target = graph.tensor("target", (count, *wide), "float32" if mixed else "int32")
    if mixed:
        drawn = permutation(key(seed, "partners"), epoch, len(report.train))
        chosen = np.concatenate([chosen, report.train[drawn[:count]]])
    given: dict[str, tuple[DType, NDArray[Any]]] = {
        "images": ("uint8", report.images.images),
        "labels": ("int32", report.images.labels),
        "order": ("int32", chosen),
        # The order has one batch, so an epoch has one step.
        "step": ("int64", np.array([epoch], np.int64)),
    }
    tensors = {
        name: graph.tensor(name, values.shape, dtype, "state" if name == "step" else "data")
        for name, (dtype, values) in given.items()
    }
    x = graph.tensor("x", (count, *report.shape))
    gather(graph, {**tensors, "x": x, "target": target}, report.scaling, report.augment)
    with closing(ReferenceBackend(1).compile({"samples": graph})) as executable:
        for name, (_, values) in given.items():
            executable.write(tensors[name], values)
        executable.run("samples")
        return executable.read(x)


def _pixels(report: DataReport, x: NDArray[np.float32]) -> NDArray[np.uint8]:
    scale = np.array(report.scaling.scale, np.float32)[:, None, None]
    shift = np.array(report.scaling.shift, np.float32)[:, None, None]
    pixels: NDArray[np.float32] = np.rint((x - shift) / scale)
    return pixels.clip(0, 255).astype(np.uint8)
