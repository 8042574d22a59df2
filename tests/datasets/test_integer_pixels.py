"""Integer pixels of more than 8 bits as 8, by the depth that is given or that they need."""

from __future__ import annotations

import io

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Preparation, as_picture, read_picture
from dnnstack.datasets.integer_pixels import Depth, Reading, fewest_bits, of_other_depth, told_of
from dnnstack.datasets.picture_files import open_picture
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from ..support.deep_pixels import chunk, png_16, tiff_16, write

LARGEST = (0, 255, 256, 1023, 1024, 4095, 4096, 65535)
DEPTHS: tuple[Depth | None, ...] = (None, 8, 10, 12, 16)


def needed(largest: int) -> int:
    return 8 if largest < 256 else 10 if largest < 1024 else 12 if largest < 4096 else 16


def expected(pixels: NDArray[np.integer], bits: int) -> NDArray[np.integer]:
    """Of each pixel the upper 8 of its ``bits``; what has more is white."""
    return np.minimum(pixels, 2**bits - 1) // 2 ** (bits - 8)


@given(st.integers(0, 65535))
def test_the_fewest_bits(largest):
    assert fewest_bits(largest) == needed(largest)


@pytest.mark.parametrize("most", LARGEST)
@pytest.mark.parametrize("bits", DEPTHS)
@pytest.mark.parametrize(("kind", "name"), [("u2", "a.png"), ("u2", "a.tif"), ("i4", "a.tif")])
def test_grey_pixels(tmp_path, most, bits, kind, name):
    pixels = np.random.default_rng(most).integers(0, most + 1, (300, 7))
    pixels[-1, -1] = most
    Image.fromarray(pixels.astype(kind)).save(tmp_path / name)
    reading, steps = Reading(bits), list[str]()
    found = np.asarray(open_picture(tmp_path / name, steps, reading))
    taken = bits or needed(most)
    np.testing.assert_array_equal(found, expected(pixels, taken))
    assert reading.largest == most
    told = "as_8_bits" if taken == 8 else f"{taken}_to_8_bits"
    assert steps == [told, *["clip"] * (most >= 2**taken)]


@pytest.mark.parametrize("most", LARGEST)
@pytest.mark.parametrize("bits", DEPTHS)
@pytest.mark.parametrize(
    ("form", "channels"),
    [*(("png", n) for n in (2, 3, 4)), *((form, n) for form in "<>d" for n in (3, 4))],
)
def test_colours_of_16_bits(tmp_path, most, bits, form, channels):
    """Pillow decodes their upper bytes alone. Half of the transparency is white paper."""
    pixels = np.random.default_rng(most).integers(0, most + 1, (6, 7, channels))
    pixels[2, 3, 0] = most
    clear = np.zeros((6, 7, 1), bool)
    if channels in (2, 4):
        clear[3:] = True
        pixels[..., -1:] = np.where(clear, 0, 65535)
    content = png_16(pixels) if form == "png" else tiff_16(pixels, form)
    reading, steps = Reading(bits), list[str]()
    found = np.asarray(open_picture(write(tmp_path / "a", content), steps, reading))
    colours = pixels[..., :3] if channels > 2 else pixels[..., :1].repeat(3, 2)
    taken = bits or needed(most)
    wanted = np.where(clear, 255, expected(colours, taken))
    np.testing.assert_array_equal(found, wanted)
    # At 16 bits Pillow's upper bytes are all, and nothing more is read.
    assert reading.largest == (-1 if bits == 16 else most)
    told = ["as_8_bits" if taken == 8 else f"{taken}_to_8_bits", *["clip"] * (most >= 2**taken)]
    assert [step for step in steps if "white" not in step] == (told if bits != 16 else [])


def test_colours_of_16_bits_that_lie_on_their_side(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = chunk(b"eXIf", exif.tobytes()[6:])
    for channels in (2, 3):
        pixels = np.arange(4 * 3 * channels).reshape(4, 3, channels)
        if channels == 2:
            pixels[..., 1] = 65535
        path = write(tmp_path / "a.png", png_16(pixels, lying))
        found = np.asarray(open_picture(path, [], Reading(8)))
        upright = np.rot90(pixels[..., : 2 * channels - 3], -1)
        np.testing.assert_array_equal(found, np.broadcast_to(upright, (3, 4, 3)))


@pytest.mark.parametrize("content", [png_16, tiff_16])
def test_a_picture_of_pillows_is_read_as_its_file(content):
    assert callable(content)
    pixels = np.random.default_rng(1).integers(0, 4096, (8, 8, 3))
    file = io.BytesIO(content(pixels))
    how = Preparation(digits=False, bits=12)
    found = as_picture(Image.open(file), "it", (3, 8, 8), how)
    np.testing.assert_array_equal(found.image, (pixels // 16).transpose(2, 0, 1))


def test_a_plain_picture_has_no_such_pixels(tmp_path):
    for image in (Image.new("RGB", (4, 4), 9), Image.new("L", (4, 4)), Image.new("F", (4, 4))):
        path = tmp_path / f"{image.mode}.tif"
        image.save(path)
        reading, steps = Reading(None), list[str]()
        open_picture(path, steps, reading)
        assert reading == Reading(None)
        assert steps == (["float_to_8_bits"] if image.mode == "F" else [])


def test_other_integers_are_refused_at_any_depth(tmp_path):
    for low, high in ((-1, 20), (0, 65536)):
        Image.fromarray(np.array([[low, high]], np.int32)).save(tmp_path / "a.tif")
        for bits in DEPTHS:
            with pytest.raises(DatasetError, match=f"a.tif: has pixels from {low} to {high}; int"):
                open_picture(tmp_path / "a.tif", [], Reading(bits))


def test_a_single_picture_is_read_as_ever(tmp_path):
    pixels = np.full((8, 8), 4095)
    Image.fromarray(pixels.astype(np.uint16)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png", (1, 8, 8)).image.max() == 15
    assert np.asarray(open_picture(tmp_path / "a.png", [])).max() == 15


def test_what_is_brighter_than_the_depth_is_told(tmp_path, caplog):
    path = tmp_path / "a.png"
    for value in (1023, 1024):
        Image.fromarray(np.full((8, 8), value, np.uint16)).save(path)
        found = read_picture(path, (1, 8, 8), Preparation(digits=False, bits=10))
        assert found.image.min() == 255
    (told,) = caplog.messages
    assert told == f"{path}: has integers up to 1024; above 10 bits, all are white"
    assert found.steps == ("10_to_8_bits", "clip")


def test_one_depth_for_a_set():
    of = {"dark": 200, "grey": 900, "bright": 1023, "jpeg": -1}
    readings = {name: Reading(None, most) for name, most in of.items()}
    assert of_other_depth(list(readings.values())) == [0]
    assert readings["dark"].bits == 10
    bits, told = told_of(readings, None)
    assert (bits, len(told)) == (10, 1)
    assert told[0].startswith("3 pictures have integer pixels; 10 bits are taken of them, as ")
    assert told[0].endswith("as their largest is 1023")
    fixed = {name: Reading(8, most) for name, most in of.items()}
    assert of_other_depth(list(fixed.values())) == []
    bits, told = told_of(fixed, 8)
    assert (bits, len(told)) == (8, 2)
    assert "8 bits are taken of them, as in training" in told[0]
    assert told[1] == "2 have larger integers, which become white: grey, bright"
    assert told_of({"jpeg": Reading(None)}, None) == (None, [])
    assert told_of({"jpeg": Reading(12)}, 12) == (12, [])
