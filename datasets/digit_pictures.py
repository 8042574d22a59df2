"""A drawn, scanned or photographed digit -> MNIST's format.

Light ink on black, scaled into a box of 20x20 with its proportions kept, centred by mass in 28x28.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from .centring import BOX, FIELD, centre_by_mass
from .components import bounds, label_regions
from .photo import Ink, find_ink, find_sheet

# Larger pictures are scaled down to this size before the digit is located.
_LONGEST = 800
# Ink differs from the paper by at least this share of a stroke's core.
_INK_SHARE = 0.25
# Regions with less than this share of the largest one's ink are specks.
_SPECK = 0.04
# In a noisy picture, regions smaller than this share of its longer side are noise or dust.
_LEAST_SHARE = 0.03
# Strokes thinner than this, in pixels of the 20x20 box, are thickened: MNIST's pen was broad.
_THIN = 2.0
_FINE = 5
# Between the darkest and the lightest parts of a picture that is not blank.
_CONTRAST = 64.0


def is_prepared(grey: NDArray[np.uint8]) -> bool:
    """Whether a picture already has MNIST's size and a dark border. grey: (H, W)."""
    return grey.shape == (FIELD, FIELD) and float(np.median(_border(grey))) < 64.0


def prepare_digit(
    grey: NDArray[np.uint8], name: str, steps: list[str], invert: bool | None = None
) -> NDArray[np.uint8]:
    """MNIST's own preparation of one digit. grey: (H, W) uint8 -> (28, 28) uint8.

    ``invert`` True: ink is darker than paper, False: lighter, None: the border decides. Ink is what
    differs from the surrounding paper; it is cropped, scaled into 20x20 with its proportions kept,
    and centred by mass. What was done is appended to ``steps``. Raises DatasetError, beginning with
    ``name``, if nothing stands out.
    """
    page = _bounded(grey)
    digit = _on_sheet(page, steps, invert)
    if digit is None:
        ink = find_ink(page, invert)
        digit = None if ink is None else _only_digit(ink, steps)
    if digit is None:
        kind = {None: "", True: " darker than its paper", False: " lighter than its paper"}[invert]
        low, high = np.percentile(page, [2, 98])
        why = (
            "no strokes stand out from a plain page; crop the picture to the digit"
            if high - low > _CONTRAST
            else "the picture is blank or has hardly any contrast"
        )
        raise DatasetError(f"{name}: no digit found{kind}: {why}")
    box = _into_box(digit, steps)
    steps.extend(("scale_to_20x20", "centre_of_mass"))
    field: NDArray[np.uint8] = centre_by_mass(box[None])[0]
    return field


def _border(plane: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([plane[0], plane[-1], plane[:, 0], plane[:, -1]])


def _bounded(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    from PIL import Image

    longest = max(grey.shape)
    if longest <= _LONGEST:
        return grey
    size = tuple(max(round(side * _LONGEST / longest), 1) for side in reversed(grey.shape))
    return np.asarray(Image.fromarray(grey).resize(size, Image.Resampling.BOX))


def _on_sheet(
    page: NDArray[np.uint8], steps: list[str], invert: bool | None
) -> NDArray[np.float32] | None:
    """The digit on a sheet of paper in the picture; None if there is no such sheet."""
    window = find_sheet(page)
    ink = None if window is None else find_ink(page[window], invert)
    tried = ["crop_to_paper"]
    digit = None if ink is None else _only_digit(ink, tried)
    if digit is not None:
        steps.extend(tried)
    return digit


def _only_digit(ink: Ink, steps: list[str]) -> NDArray[np.float32] | None:
    """The ink of the digit, cropped, without noise, specks and parts cut off by the border.

    None if there is only noise.
    """
    level = ink.level
    share = max(_INK_SHARE, min(4.0 * ink.noise, 0.6))
    noisy = ink.noise > 0.01
    labels, count = label_regions((ink.smooth if noisy else level) >= share)
    if count == 0:
        return None
    mass = np.bincount(labels.reshape(-1), level.reshape(-1), count + 1)
    mass[0] = 0.0
    edge = np.zeros(count + 1, bool)
    edge[np.unique(_border(labels))] = True
    inner = np.where(edge, 0.0, mass)
    if inner.max() >= 0.1 * mass.max():
        mass = inner
    kept = mass >= _SPECK * mass.max()
    mask = kept[labels]
    window = bounds(mask)
    largest = max(int(side.stop - side.start) for side in bounds(labels == mass.argmax()))
    if noisy and largest < _LEAST_SHARE * max(level.shape):
        return None
    if ink.inverted:
        steps.append("invert")
    if ink.ruled:
        steps.append("remove_lines")
    if int(kept.sum()) < count:
        steps.append("remove_specks")
    steps.append("crop_to_ink")
    # The soft edge of a stroke is just outside the mask.
    around = _dilated(mask, 1.5)[window]
    floor = min(4.0 * ink.noise, 0.4)
    clean = np.clip((level[window] - floor) / (1.0 - floor), 0.0, 1.0)
    return np.where(around, clean, np.float32(0.0)).astype(np.float32)


def _into_box(ink: NDArray[np.float32], steps: list[str]) -> NDArray[np.uint8]:
    """Scale with the proportions kept, so that the longer side is 20: (20, 20) uint8."""
    fine = _scaled(ink, BOX * _FINE)
    width = _stroke_width(fine) / _FINE
    if width < _THIN:
        radius = (_THIN - width) * _FINE / 2.0
        ink = _dilated(np.pad(fine, int(radius) + 1), radius)
        steps.append("thicken")
    scaled = _scaled(ink, BOX)
    # Thin strokes fade when scaled down; make the strongest pixel full ink again.
    pixels = scaled * (255.0 / max(float(scaled.max()), 1e-6))
    box = np.zeros((BOX, BOX), np.uint8)
    height, across = pixels.shape
    top, left = (BOX - height) // 2, (BOX - across) // 2
    box[top : top + height, left : left + across] = np.rint(pixels).astype(np.uint8)
    return box


def _scaled(ink: NDArray[np.float32], longest: int) -> NDArray[np.float32]:
    from PIL import Image

    height, width = ink.shape
    scale = longest / max(height, width)
    size = (max(round(width * scale), 1), max(round(height * scale), 1))
    scaled = np.asarray(Image.fromarray(ink).resize(size, Image.Resampling.BICUBIC))
    result: NDArray[np.float32] = np.clip(scaled, 0.0, 1.0)
    return result


def _stroke_width(ink: NDArray[np.float32]) -> float:
    """Mean width of the strokes in pixels: twice the area over the length of the outline."""
    mask = np.pad(ink >= 0.5, 1)
    area = int(mask.sum())
    # Outlines counted along rows and columns are too long by 4 / pi, averaged over directions.
    sides = int((mask[1:] != mask[:-1]).sum()) + int((mask[:, 1:] != mask[:, :-1]).sum())
    return 2.0 * area / max(sides * np.pi / 4.0, 1.0)


def _dilated(values: NDArray[Any], radius: float) -> NDArray[Any]:
    """The largest value within ``radius``, the picture's size unchanged."""
    reach = int(radius)
    result = values.copy()
    padded = np.pad(values, reach)
    height, width = values.shape
    for y in range(-reach, reach + 1):
        for x in range(-reach, reach + 1):
            if 0 < x * x + y * y <= radius * radius:
                part = padded[reach + y : reach + y + height, reach + x : reach + x + width]
                np.maximum(result, part, out=result)
    return result
