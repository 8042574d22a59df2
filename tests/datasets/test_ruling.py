"""Lines of ruled and squared paper are removed, and no stroke of a digit is."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.datasets.ruling import without_lines
from PIL import Image, ImageDraw


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
