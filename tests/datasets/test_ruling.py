"""Lines of ruled and squared paper are removed, and no stroke of a digit is."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.datasets.ruling import _bands, without_lines
from PIL import Image, ImageDraw


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
