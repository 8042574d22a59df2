"""How likely a shape is among real digits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from dnnstack.common.random import key
from dnnstack.datasets.digit_pictures import prepare_digit
from dnnstack.datasets.digit_shapes import edges, is_unlikely, log_likelihood
from dnnstack.datasets.strokes_draw import draw
from matplotlib import get_data_path
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

FONTS = Path(get_data_path()) / "fonts" / "ttf"


def printed(text: str) -> NDArray[np.uint8]:
    page = Image.new("L", (200, 200))
    font = ImageFont.truetype(str(FONTS / "DejaVuSans.ttf"), 110)
    ImageDraw.Draw(page).text((100, 100), text, fill=255, font=font, anchor="mm")
    return prepare_digit(np.asarray(page), text, [])


def test_drawn_digits_are_likely():
    digits = draw(key(3, "strokes", "test"), 0, 200)[0].reshape(-1, 28, 28)
    assert sum(map(is_unlikely, digits)) <= 10


def test_printed_letters_are_not():
    assert sum(is_unlikely(printed(letter)) for letter in "AEHKMRWe") >= 6


def test_edges_do_not_depend_on_the_darkness_of_the_ink():
    bars = np.zeros((2, 28, 28), np.uint8)
    bars[0, 10:14, 4:24] = 200
    bars[1, 4:24, 10:14] = 200
    rows = edges(bars)
    assert rows.shape == (2, 392)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    np.testing.assert_allclose(edges(bars // 2), rows, atol=1e-9)
    # The long edges of the one have the directions of the short edges of the other.
    lying, upright = (row.reshape(8, -1).sum(1) for row in rows)
    assert lying[2] > 2 * lying[0]
    assert upright[0] > 2 * upright[2]
    assert np.isfinite(edges(np.zeros((1, 28, 28), np.uint8))).all()


def test_the_likelihood_is_that_of_a_gaussian():
    """Of the density itself, with all directions but one kept: nothing is approximated."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 3)) * (3.0, 2.0, 1.0)
    labels = np.repeat(np.array([0, 1], np.int32), 200)
    rows[labels == 1] += 20.0
    fits = []
    for label in (0, 1):
        values, vectors = np.linalg.eigh(np.cov(rows[labels == label].T))
        fits.append((rows[labels == label].mean(0), vectors[:, :0:-1].T, values[:0:-1], values[0]))
    names = ("means", "axes", "variances", "rests")
    table = {
        name: np.array(each) for name, each in zip(names, zip(*fits, strict=True), strict=True)
    }
    own = rows[labels == 1]
    away, spread = rows[-5:] - own.mean(0), np.cov(own.T)
    expected = -np.einsum("ni,ij,nj->n", away, np.linalg.inv(spread), away)
    expected -= np.linalg.slogdet(spread)[1]
    np.testing.assert_allclose(log_likelihood(rows[-5:], table), expected, rtol=0.02)
