"""A drawn or scanned digit -> MNIST's format: light ink on black, 20x20 box, centred by mass."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from .centring import BOX, FIELD, centre_by_mass

_LEAST_CONTRAST = 24
# Ink is what stands out from the paper by this share of the strongest ink.
_INK_SHARE = 0.25


def is_prepared(grey: NDArray[np.uint8]) -> bool:
    """Whether a picture already has MNIST's size and a dark border. grey: (H, W)."""
    return grey.shape == (FIELD, FIELD) and float(np.median(_border(grey))) < 64.0


def prepare_digit(grey: NDArray[np.uint8], name: str, steps: list[str]) -> NDArray[np.uint8]:
    """MNIST's own preparation of one digit. grey: (H, W) uint8 -> (28, 28) uint8.

    Ink is dark or light against the border's median; it is cropped, scaled into 20x20 with its
    proportions kept, and centred by mass. What was done is appended to ``steps``. Raises
    DatasetError, beginning with ``name``, where nothing stands out.
    """
    ink = _ink(grey, name, steps)
    rows = np.flatnonzero((ink >= _INK_SHARE).any(1))
    columns = np.flatnonzero((ink >= _INK_SHARE).any(0))
    ink = ink[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    steps.append("crop_to_ink")
    box = _into_box(ink)
    steps.extend(("scale_to_20x20", "centre_of_mass"))
    field: NDArray[np.uint8] = centre_by_mass(box[None])[0]
    return field


def _border(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])


def _ink(grey: NDArray[np.uint8], name: str, steps: list[str]) -> NDArray[np.float32]:
    """How much ink is at each pixel, 0 (paper) to 1 (the strongest)."""
    paper = float(np.median(_border(grey)))
    darker = paper - float(grey.min())
    lighter = float(grey.max()) - paper
    if max(darker, lighter) < _LEAST_CONTRAST:
        raise DatasetError(
            f"{name}: no digit found: the picture is blank or has hardly any contrast"
        )
    level = grey.astype(np.float32) - np.float32(paper)
    if darker > lighter:
        level = -level
        steps.append("invert")
    ink: NDArray[np.float32] = np.clip(level / np.float32(max(darker, lighter)), 0.0, 1.0)
    return ink


def _into_box(ink: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Scaled with its proportions kept so that the longer side is 20: (20, 20) uint8."""
    from PIL import Image

    height, width = ink.shape
    longest = max(height, width)
    size = (max(round(BOX * width / longest), 1), max(round(BOX * height / longest), 1))
    scaled = Image.fromarray(ink).resize(size, Image.Resampling.BICUBIC)
    pixels = np.clip(np.asarray(scaled), 0.0, None)
    # A thin pen fades when scaled down; its strongest pixel is full ink again.
    pixels = pixels * (255.0 / max(float(pixels.max()), 1e-6))
    box = np.zeros((BOX, BOX), np.uint8)
    top, left = (BOX - size[1]) // 2, (BOX - size[0]) // 2
    box[top : top + size[1], left : left + size[0]] = np.rint(pixels).astype(np.uint8)
    return box
