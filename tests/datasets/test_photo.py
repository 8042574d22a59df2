"""Photographs of digits on paper, made here: what is found on them is what was drawn."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.random import key
from dnnstack.datasets import Preparation, read_picture
from dnnstack.datasets.photo import find_ink
from dnnstack.datasets.strokes_draw import draw
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

DIGIT = (1, 28, 28)
COUNT = 12
Plane = NDArray[np.float64]


def light(height: int, width: int, rng: np.random.Generator, shadow: bool) -> Plane:
    """Falling off to one side and to the corners, up to 1; perhaps with a soft shadow."""
    y, x = np.mgrid[0:height, 0:width]
    y, x = y / height - 0.5, x / width - 0.5
    angle = rng.uniform(0, 2 * np.pi)
    along = np.cos(angle) * x + np.sin(angle) * y
    found: Plane = (1 - rng.uniform(0.2, 0.5) * (along + 0.5)) * (1 - 0.6 * (x**2 + y**2))
    if shadow:
        found = found * (1 - 0.3 / (1 + np.exp(-(along - 0.1) / 0.06)))
    return found


def photograph(
    digit: NDArray[np.uint8], seed: int, path: Path, *, pencil: bool = False, shadow: bool = False
) -> Path:
    """Ink on grey paper, uneven light, vignette, blur, noise, JPEG. digit: (28, 28)."""
    rng = np.random.default_rng(seed)
    side = int(rng.integers(120, 260))
    height, width = int(side * rng.uniform(1.3, 2.2)), int(side * rng.uniform(1.3, 2.2))
    ink = Image.fromarray(digit).resize((side, side), Image.Resampling.BICUBIC)
    page = Image.new("L", (width, height))
    page.paste(ink, (int(rng.integers(width - side + 1)), int(rng.integers(height - side + 1))))
    coverage = np.clip((np.asarray(page) / 255.0 - 0.5) * side / 56.0 + 0.5, 0.0, 1.0)
    strength = 0.75
    if pencil:
        strength = 0.4
        coverage = coverage * np.clip(rng.normal(0.9, 0.2, coverage.shape), 0.3, 1.1)
    grey = rng.uniform(140, 220) * (1 - strength * coverage) * light(height, width, rng, shadow)
    soft = Image.fromarray(grey.astype(np.uint8)).filter(ImageFilter.GaussianBlur(1.2))
    noisy = np.asarray(soft) + rng.normal(0, 5, (height, width))
    Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).convert("RGB").save(path, quality=75)
    return path


def likeness(one: NDArray[np.uint8], two: NDArray[np.uint8]) -> float:
    """The cosine between two pictures, 1 where they are alike.

    The best of all shifts by a pixel: centring rounds to whole ones.
    """
    a = one.reshape(28, 28).astype(float)
    b = two.reshape(28, 28).astype(float)
    size = np.sqrt((a * a).sum() * (b * b).sum())
    moved = (np.roll(b, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1))
    return max(float((a * other).sum() / size) for other in moved)


@pytest.fixture(scope="module")
def digits() -> NDArray[np.uint8]:
    return draw(key(3, "strokes", "test"), 0, COUNT)[0]


@pytest.mark.parametrize("pencil", [False, True])
@pytest.mark.parametrize("shadow", [False, True])
def test_a_digit_on_a_photograph_is_the_one_that_was_drawn(
    tmp_path: Path, digits: NDArray[np.uint8], pencil: bool, shadow: bool
) -> None:
    alike = []
    for seed, digit in enumerate(digits):
        path = photograph(digit, seed, tmp_path / "a.jpg", pencil=pencil, shadow=shadow)
        found = read_picture(path, DIGIT)
        assert found.steps[:2] == ("grey", "invert"), seed
        # Nothing but the digit: the border of the field stays black.
        assert found.image[0, [0, -1]].max() == 0
        alike.append(likeness(found.image, digit))
    assert float(np.median(alike)) > 0.95
    assert min(alike) > 0.87


@pytest.mark.parametrize("contrast", [16, 18, 20])
def test_a_faint_stroke_is_not_lost_in_the_grain_of_paper(tmp_path: Path, contrast: int) -> None:
    """Steps from cell to cell that are larger than need be would lead across the stroke."""
    page = Image.new("L", (240, 240))
    ImageDraw.Draw(page).line([(90, 60), (150, 60), (110, 180)], fill=1, width=14)
    grain = np.random.default_rng(1).normal(0, 2.5, (60, 60)).repeat(4, 0).repeat(4, 1)
    found = []
    for strength, rough in ((100, 0.0), (contrast, grain)):
        grey = 160 - strength * np.asarray(page) + rough
        Image.fromarray(grey.astype(np.uint8)).save(tmp_path / "page.png")
        found.append(read_picture(tmp_path / "page.png", DIGIT).image[0])
    assert likeness(*found) > 0.96


def test_bare_paper_has_no_digit(tmp_path: Path) -> None:
    refused = 0
    for seed in range(COUNT):
        path = photograph(np.zeros((28, 28), np.uint8), seed, tmp_path / "a.jpg")
        with contextlib.suppress(DatasetError):
            read_picture(path, DIGIT)
            continue
        refused += 1
    assert refused >= COUNT - 1


def test_specks_and_what_the_border_cuts_are_left_out(
    tmp_path: Path, digits: NDArray[np.uint8]
) -> None:
    path = photograph(digits[0], 1, tmp_path / "a.jpg")
    clean = read_picture(path, DIGIT).image
    with Image.open(path) as picture:
        dirty = picture.convert("L")
    pen = ImageDraw.Draw(dirty)
    pen.rectangle((0, 0, 5, dirty.height), fill=20)
    pen.ellipse((dirty.width - 12, dirty.height - 12, dirty.width - 8, dirty.height - 8), fill=20)
    dirty.save(tmp_path / "b.png")
    found = read_picture(tmp_path / "b.png", DIGIT)
    assert "remove_specks" in found.steps
    assert likeness(found.image, clean) > 0.95


def test_a_page_that_is_darker_at_one_side_than_its_ink_at_the_other() -> None:
    """No single threshold parts them: the local one must."""
    x = np.linspace(1.0, 0.25, 200)
    page = np.tile(230.0 * x, (120, 1))
    page[40:80, 20:26] *= 0.5
    page[40:80, 174:180] *= 0.5
    assert page[:, -1].max() < page[60, 22]
    ink = find_ink(page.astype(np.uint8))
    assert ink is not None
    assert ink.inverted
    inside = ink.level > 0.5
    assert inside[45:75, 21:25].all()
    assert inside[45:75, 175:179].all()
    outside = inside.copy()
    outside[38:82, 18:28] = False
    outside[38:82, 172:182] = False
    assert not outside.any()


@pytest.mark.parametrize("table", [40, 250])
def test_a_sheet_of_paper_on_a_table_is_cut_out(
    tmp_path: Path, digits: NDArray[np.uint8], table: int
) -> None:
    for seed, digit in enumerate(digits[:8]):
        path = photograph(digit, seed, tmp_path / "a.jpg")
        alone = read_picture(path, DIGIT)
        with Image.open(path) as picture:
            sheet = picture.convert("L")
        if table == 250:
            sheet = sheet.point(lambda value: value // 2)
        page = Image.new("L", (sheet.width * 4 // 3, sheet.height * 4 // 3), table)
        page.paste(sheet, (sheet.width // 9, sheet.height // 4))
        page.rotate(4, Image.Resampling.BICUBIC, fillcolor=table).save(tmp_path / "b.png")
        found = read_picture(tmp_path / "b.png", DIGIT)
        assert found.steps[0] == "crop_to_paper"
        assert "invert" in found.steps
        assert "crop_to_paper" not in alone.steps
        # A turn of 4 degrees changes a digit a little.
        assert likeness(found.image, digit) > 0.8


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
