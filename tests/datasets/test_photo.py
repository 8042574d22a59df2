"""Bold digits are no sheets of paper; what the user says of their ink counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Preparation, read_picture
from PIL import Image, ImageDraw

DIGIT = (1, 28, 28)


@pytest.mark.parametrize("ink", [0, 255])
@pytest.mark.parametrize("shape", ["disc", "ring", "bar", "block"])
def test_a_bold_digit_is_no_sheet(tmp_path: Path, shape: str, ink: int) -> None:
    """Neither a zero that fills its page nor a thick one is taken for paper."""
    page = Image.new("L", (200, 240), 255 - ink)
    pen = ImageDraw.Draw(page)
    if shape == "bar":
        pen.rectangle((80, 20, 130, 220), fill=ink)
    elif shape == "block":
        pen.rectangle((20, 20, 180, 220), fill=ink)
    else:
        hole = {"disc": 70, "ring": 55}[shape]
        pen.ellipse((20, 20, 180, 220), fill=ink)
        pen.ellipse((hole, hole, 200 - hole, 240 - hole), fill=255 - ink)
    page.save(tmp_path / "a.jpg", quality=80)
    found = read_picture(tmp_path / "a.jpg", DIGIT)
    assert "crop_to_paper" not in found.steps
    rows = np.flatnonzero((found.image[0] > 127).any(1))
    assert len(rows) == 20


@pytest.mark.parametrize("invert", [True, False])
def test_the_word_of_the_user_counts_more_than_the_border(tmp_path: Path, invert: bool) -> None:
    """A dark frame around a light page: the border says that ink is light."""
    page = Image.new("L", (160, 160), 90)
    pen = ImageDraw.Draw(page)
    pen.rectangle((100, 40, 110, 120), fill=20)
    pen.rectangle((40, 40, 60, 120), fill=200)
    page.save(tmp_path / "a.png")
    found = read_picture(tmp_path / "a.png", DIGIT, Preparation(invert=invert))
    columns = np.flatnonzero((found.image[0] > 127).any(0))
    # The dark bar is 11 pixels wide and 81 high, the light one 21.
    assert len(columns) == (3 if invert else 5)
    assert ("invert" in found.steps) == invert


def test_a_blank_page_says_which_ink_was_missed(tmp_path: Path) -> None:
    page = Image.new("L", (160, 160), 200)
    ImageDraw.Draw(page).rectangle((70, 40, 80, 120), fill=20)
    page.save(tmp_path / "a.png")
    with pytest.raises(DatasetError, match="no digit found lighter than its paper"):
        read_picture(tmp_path / "a.png", DIGIT, Preparation(invert=False))
