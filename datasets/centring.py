"""The last step of MNIST's preparation (LeCun et al. 1998, section III.A).

A digit, scaled into a box of 20x20 pixels with its proportions kept, is shifted by whole pixels so
that its centre of mass is at pixel (14, 14) of a 28x28 field.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BOX = 20
FIELD = 28


def centre_by_mass(boxes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Place digits from their boxes into their fields. boxes: (M, 20, 20) -> (M, 28, 28) uint8.

    Integer arithmetic throughout. The box stays inside the field; an empty one is centred.
    """
    ruler = np.arange(BOX, dtype=np.int64)
    mass = boxes.sum((1, 2), dtype=np.int64)
    top = _offset(boxes.sum(2, dtype=np.int64) @ ruler, mass)
    left = _offset(boxes.sum(1, dtype=np.int64) @ ruler, mass)
    fields = np.zeros((len(boxes), FIELD, FIELD), np.uint8)
    first = np.arange(len(boxes), dtype=np.int64) * (FIELD * FIELD) + top * FIELD + left
    inside = (ruler[:, None] * FIELD + ruler).reshape(-1)
    fields.reshape(-1)[first[:, None] + inside] = boxes.reshape(len(boxes), -1)
    return fields


def _offset(moment: NDArray[np.int64], mass: NDArray[np.int64]) -> NDArray[np.int64]:
    """The integer shift that brings moment / mass nearest to 14 (halves round up)."""
    middle = (FIELD - BOX) // 2
    centre = (2 * moment + mass) // np.maximum(2 * mass, 1)
    offset = np.clip(FIELD // 2 - centre, 0, FIELD - BOX)
    return np.where(mass > 0, offset, middle)
