"""Which shapes are hardly one digit."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.random import key
from dnnstack.datasets.one_digit import NO_DIGIT, SEVERAL, doubt
from dnnstack.datasets.strokes_draw import draw
from numpy.typing import NDArray


def field(*boxes: tuple[int, int, int, int]) -> NDArray[np.uint8]:
    """Rectangles of ink: first and last row, first and last column."""
    made = np.zeros((28, 28), np.uint8)
    for top, bottom, left, right in boxes:
        made[top : bottom + 1, left : right + 1] = 255
    return made


def rings(count: int) -> NDArray[np.uint8]:
    made = np.zeros((28, 28), np.uint8)
    for number in range(count):
        top = 4 + 5 * number
        made[top : top + 6, 10:18] = 255
    for number in range(count):
        top = 4 + 5 * number
        made[top + 1 : top + 5, 12:16] = 0
    return made


@pytest.mark.parametrize(
    ("digit", "expected"),
    [
        (field((4, 23, 12, 15)), ""),
        (field((4, 23, 6, 9), (4, 23, 16, 19)), SEVERAL),
        (field((4, 23, 6, 9), (8, 20, 16, 19)), SEVERAL),
        (field((4, 12, 8, 18), (16, 23, 8, 18)), SEVERAL),
        (field((10, 17, 4, 23)), SEVERAL),
        # The bar of a 5 apart from its bow, and a speck.
        (field((4, 5, 10, 18), (8, 23, 8, 18)), ""),
        (field((4, 23, 12, 15), (4, 5, 20, 21)), ""),
        (rings(1), ""),
        (rings(2), ""),
        (rings(3), NO_DIGIT),
        (field(), NO_DIGIT),
    ],
)
def test_shapes(digit, expected):
    assert doubt(digit) == expected


def test_drawn_digits_are_digits():
    digits = draw(key(3, "strokes", "test"), 0, 300)[0].reshape(-1, 28, 28)
    assert sum(bool(doubt(digit)) for digit in digits) <= 6
