"""Lines of ruled and squared paper are removed, and no stroke of a digit is."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.random import key
from dnnstack.datasets import Preparation, read_picture
from dnnstack.datasets.ruling import _bands, without_lines
from dnnstack.datasets.strokes_draw import draw
from numpy.typing import NDArray
from PIL import Image, ImageDraw

DIGIT = (1, 28, 28)


def paper(digit: NDArray[np.uint8], seed: int, squares: bool) -> NDArray[np.uint8]:
    """A digit on paper with lines, a little askew, as dark as half of the ink."""
    rng = np.random.default_rng(seed)
    side = 260
    page = Image.new("L", (2 * side, 2 * side))
    lines = ImageDraw.Draw(page)
    apart = int(rng.integers(30, 60) if squares else rng.integers(90, 200))
    for at in range(int(rng.integers(apart)), 2 * side, apart):
        lines.line([(0, at), (2 * side, at)], fill=110, width=3)
        if squares:
            lines.line([(at, 0), (at, 2 * side)], fill=110, width=3)
    page = page.rotate(rng.uniform(-7, 7), Image.Resampling.BICUBIC)
    page = page.crop((side // 2, side // 2, side // 2 + side, side // 2 + side))
    large = Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)
    ink = np.maximum(np.asarray(page, float), (np.asarray(large) > 127) * 230.0)
    noisy = 235 - 0.8 * ink + rng.normal(0, 3, ink.shape)
    return np.clip(noisy, 0, 255).astype(np.uint8)


def likeness(one: NDArray[np.uint8], two: NDArray[np.uint8]) -> float:
    a, b = (each.reshape(28, 28).astype(float) for each in (one, two))
    moved = [np.roll(b, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1)]
    size = np.sqrt((a * a).sum() * (b * b).sum())
    return max(float((a * other).sum() / size) for other in moved)


@pytest.mark.parametrize("squares", [False, True])
def test_a_digit_on_lines_is_the_one_that_was_drawn(tmp_path, squares):
    digits = draw(key(3, "strokes", "test"), 0, 10)[0]
    alike = []
    for seed, digit in enumerate(digits):
        path = tmp_path / f"{seed}.png"
        Image.fromarray(paper(digit.reshape(28, 28), seed, squares)).save(path)
        alike.append(likeness(read_picture(path, DIGIT, Preparation()).image, digit))
    assert np.median(alike) > 0.9, alike
    assert sum(each > 0.8 for each in alike) >= 9, alike


def test_a_page_without_lines_is_not_changed():
    level = np.zeros((200, 150), np.float32)
    level[40:160, 60:80] = 1.0
    level[40:60, 20:120] = 1.0
    level += np.random.default_rng(1).normal(0, 0.01, level.shape).astype(np.float32)
    cleaned, found = without_lines(level, 0.01)
    assert not found
    assert cleaned is level


def test_a_thin_stroke_from_edge_to_edge_is_no_line_if_it_is_all_there_is():
    """A 1 that fills its picture."""
    level = np.zeros((300, 90), np.float32)
    level[:, 43:47] = 1.0
    cleaned, found = without_lines(level, 0.0)
    assert not found
    assert cleaned is level


@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("degrees", [0.5, 1.0, 1.4, 2.5, 3.0])
def test_sharp_lines_that_climb_by_whole_pixels_are_removed(degrees, width):
    """As a drawing program gives them: not smoothed, in one row here and in the next one there."""
    side = 400
    page = Image.new("L", (side, side))
    lines = ImageDraw.Draw(page)
    climb = side * np.tan(np.deg2rad(degrees))
    for at in range(30, side - 30, 70):
        lines.line([(0, at), (side, at + climb)], fill=128, width=width)
    level = np.asarray(page, np.float32) / np.float32(255.0)
    level[80:280, 190:215] = 1.0
    level[80:105, 130:215] = 1.0
    cleaned, found = without_lines(level, 0.0)
    assert found
    assert cleaned[85:275, 193:212].min() > 0.9
    assert cleaned[:, :120].max() < 0.1
    assert cleaned[:, 230:].max() < 0.1


def test_what_lies_beside_the_picture_hides_no_line():
    """A quarter of the sheared rows is of no pixel."""
    level = np.zeros((100, 400), np.float32)
    inside = np.ones_like(level, bool)
    level[50:53, 100:], inside[:, :100] = 1.0, False
    assert _bands(level, inside, 0.0) == [(50, 52)]
