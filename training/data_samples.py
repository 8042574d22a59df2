"""Samples of a data set as the network sees them, on a contact sheet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.random import key, permutation
from .contact_sheet import COLUMNS, draw_sheet, write_png
from .data_report import DataReport

_MANY_CLASSES = 20


def save_samples(report: DataReport, seed: int, path: Path) -> None:
    """Write the sheet of ``samples`` to a PNG file. Raises DatasetError where it cannot be."""
    count = len(report.train)
    title = f"{report.images.name}: {count} pictures to train on, as the network sees them"
    write_png(draw_sheet(title, samples(report, seed)), path)


def samples(report: DataReport, seed: int) -> list[tuple[str, NDArray[np.uint8]]]:
    """Two lines of training pictures for each class, one where there are more than 20 classes.

    They are drawn by the seed, go into the network's input as in training, and are scaled back to
    pixels. Returns class names with (n, C, H, W) uint8.
    """
    images, classes = report.images, report.images.classes
    order = report.train[permutation(key(seed, "contact sheet"), 0, len(report.train))]
    count = COLUMNS * (2 if len(classes) <= _MANY_CLASSES else 1)
    rows = []
    for label, name in enumerate(classes):
        chosen = order[images.labels[order] == label][:count]
        rows.append((name, _seen(report, images.images[chosen])))
    return rows


def _seen(report: DataReport, images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    scale = np.array(report.scaling.scale, np.float32)[:, None, None]
    shift = np.array(report.scaling.shift, np.float32)[:, None, None]
    x = images.astype(np.float32) * scale + shift
    pixels: NDArray[np.float32] = np.rint((x - shift) / scale)
    return pixels.clip(0, 255).astype(np.uint8)
