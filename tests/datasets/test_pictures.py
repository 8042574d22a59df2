from __future__ import annotations

import contextlib
import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.random import key
from dnnstack.datasets import Preparation, read_picture
from dnnstack.datasets.digit_pictures import prepare_digit
from dnnstack.datasets.pictures import as_picture
from dnnstack.datasets.strokes_draw import draw
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from PIL import Image, ImageDraw, ImageOps

DIGIT = (1, 28, 28)


def bar(
    size: tuple[int, int] = (200, 200),
    box: tuple[int, int, int, int] = (90, 30, 110, 170),
    *,
    ink: int = 0,
    paper: int = 255,
) -> Image.Image:
    picture = Image.new("L", size, paper)
    ImageDraw.Draw(picture).rectangle(box, fill=ink)
    return picture


def save(picture: Image.Image, path: Path, **options: object) -> Path:
    picture.save(path, **options)
    return path


def test_a_picture_in_mnists_format_passes_unchanged(tmp_path):
    images, _ = draw(key(0, "strokes", "test"), 0, 20)
    for image in images:
        found = read_picture(save(Image.fromarray(image), tmp_path / "a.png"), DIGIT)
        np.testing.assert_array_equal(found.image, image[None])
        assert found.steps == ()


def test_a_28x28_picture_on_white_is_prepared(tmp_path):
    image = draw(key(0, "strokes", "test"), 0, 1)[0][0]
    found = read_picture(save(Image.fromarray(255 - image), tmp_path / "a.png"), DIGIT)
    assert found.steps[0] == "invert"
    assert np.abs(found.image[0].astype(int) - image).mean() < 12


@pytest.mark.parametrize(("ink", "paper"), [(0, 255), (255, 0), (40, 190), (220, 90)])
def test_ink_is_light_on_black_in_the_box_and_centred(tmp_path, ink, paper):
    found = read_picture(save(bar(ink=ink, paper=paper), tmp_path / "a.png"), DIGIT)
    image = found.image[0]
    assert found.image.shape == DIGIT
    assert found.image.dtype == np.uint8
    rows, columns = np.nonzero(image > 127)
    assert (rows.min(), rows.max()) == (4, 23)
    assert columns.max() - columns.min() + 1 == 3
    assert abs((columns * 1.0).mean() - 14.0) <= 0.5
    assert image.max() == 255
    assert image[0].max() == 0
    assert ("invert" in found.steps) == (ink < paper)
    assert found.steps[-3:] == ("crop_to_ink", "scale_to_20x20", "centre_of_mass")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
def test_every_mode_gives_the_same_digit(tmp_path, mode):
    expected = read_picture(save(bar(), tmp_path / "grey.png"), DIGIT).image
    if mode == "I;16":
        picture = Image.fromarray(np.asarray(bar()).astype(np.uint16) * 257)
    else:
        picture = bar().convert(mode)
    path = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    found = read_picture(save(picture, path), DIGIT).image
    assert np.abs(found.astype(int) - expected).max() <= 2


@pytest.mark.parametrize("extension", ["png", "jpg", "gif", "bmp", "tif", "webp", "pgm"])
def test_every_format_is_read_whatever_its_name(tmp_path, extension):
    path = save(bar(), tmp_path / f"a.{extension}").rename(tmp_path / "nameless")
    rows, _ = np.nonzero(read_picture(path, DIGIT).image[0] > 127)
    assert (rows.min(), rows.max()) == (4, 23)


def test_transparency_is_laid_on_white(tmp_path):
    picture = Image.new("RGBA", (100, 100), (0, 0, 0, 0))
    ImageDraw.Draw(picture).rectangle((45, 10, 54, 89), fill=(0, 0, 0, 255))
    found = read_picture(save(picture, tmp_path / "a.png"), DIGIT)
    assert found.steps[:3] == ("transparency_on_white", "grey", "invert")
    rows, columns = np.nonzero(found.image[0] > 127)
    assert rows.max() - rows.min() == 19
    assert columns.max() - columns.min() < 4


def test_a_transparent_palette_colour_is_laid_on_white(tmp_path):
    picture = bar().convert("P")
    path = save(picture, tmp_path / "a.gif", transparency=picture.getpixel((0, 0)))
    assert "transparency_on_white" in read_picture(path, DIGIT).steps


def test_the_exif_orientation_is_obeyed(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    lying = bar().transpose(Image.Transpose.ROTATE_90)
    found = read_picture(save(lying, tmp_path / "a.jpg", exif=exif, quality=95), DIGIT)
    assert found.steps[0] == "exif_rotation"
    rows, columns = np.nonzero(found.image[0] > 127)
    assert rows.max() - rows.min() > columns.max() - columns.min()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 32, 32), (3, 24, 48)])
def test_other_networks_get_the_middle_scaled(tmp_path, shape):
    picture = Image.new("RGB", (300, 100), (10, 20, 30))
    ImageDraw.Draw(picture).rectangle((100, 0, 199, 99), fill=(200, 100, 50))
    found = read_picture(save(picture, tmp_path / "a.png"), shape)
    assert found.image.shape == shape
    assert "centre_crop" in found.steps
    assert "scale" in found.steps
    middle = found.image[:, shape[1] // 2, shape[2] // 2].tolist()
    assert middle == ([200, 100, 50] if shape[0] == 3 else [124])


def test_a_picture_of_the_right_shape_passes_unchanged(tmp_path):
    pixels = np.arange(32 * 32 * 3, dtype=np.uint32).reshape(32, 32, 3).astype(np.uint8)
    found = read_picture(save(Image.fromarray(pixels), tmp_path / "a.png"), (3, 32, 32))
    np.testing.assert_array_equal(found.image, pixels.transpose(2, 0, 1))
    assert found.steps == ()
    assert found.image.flags.c_contiguous


def refuse(path: Path, message: str, shape: tuple[int, int, int] = DIGIT) -> None:
    with pytest.raises(DatasetError, match=message) as caught:
        read_picture(path, shape)
    assert str(caught.value).startswith(f"{path}: ")


def test_what_is_not_a_picture_is_refused(tmp_path):
    refuse(tmp_path / "missing.png", "no such file")
    refuse(tmp_path, "is not a file")
    text = tmp_path / "a.png"
    text.write_text("hello")
    refuse(text, "not a picture of a known format")
    text.write_text("")
    refuse(text, "is empty, 0 bytes")
    os.mkfifo(tmp_path / "pipe.png")
    refuse(tmp_path / "pipe.png", "is not a file")


def test_formats_beyond_the_list_are_refused(tmp_path):
    refuse(save(bar(), tmp_path / "a.ico"), "not a picture of a known format")


@pytest.mark.parametrize("extension", ["png", "jpg", "gif", "bmp", "tif", "webp"])
def test_a_truncated_picture_is_refused(tmp_path, extension):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    path = save(Image.fromarray(noise), tmp_path / f"a.{extension}")
    path.write_bytes(path.read_bytes()[:-900])
    refuse(path, "damaged or cannot be read|not a picture")


def giant_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("size", [(8001, 8000), (10_000, 10_000), (60_000, 60_000)])
def test_a_giant_is_refused_before_it_is_decoded(tmp_path, size, monkeypatch):
    def fail(self: Image.Image) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", fail)
    path = tmp_path / "giant.png"
    path.write_bytes(giant_png(*size))
    refuse(path, "limit of 64 million|far too many pixels")


@pytest.mark.parametrize("paper", [0, 128, 255])
def test_a_blank_picture_is_refused(tmp_path, paper):
    path = save(Image.new("L", (100, 100), paper), tmp_path / "a.png")
    refuse(path, "no digit found: the picture is blank or has hardly any contrast")


def test_noise_is_refused_for_what_it_is(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    path = save(Image.fromarray(noise), tmp_path / "a.png")
    refuse(path, "no digit found: no strokes stand out from a plain page")


@pytest.mark.parametrize("scale", [1.0, 255.0])
def test_a_digit_of_floating_point_pixels(tmp_path, scale):
    values = np.asarray(bar()).astype(np.float32) * np.float32(scale / 255.0)
    found = read_picture(save(Image.fromarray(values), tmp_path / "a.tif"), DIGIT)
    assert found.steps[0] == "float_to_8_bits"
    expected = read_picture(save(bar(), tmp_path / "b.png"), DIGIT)
    np.testing.assert_array_equal(found.image, expected.image)


def test_pixels_that_are_not_finite_are_refused(tmp_path):
    values = np.full((30, 30), np.nan, np.float32)
    refuse(save(Image.fromarray(values), tmp_path / "a.tif"), "not finite numbers")


def test_a_lab_picture_gives_its_lightness(tmp_path):
    planes = [bar(), Image.new("L", (200, 200), 128), Image.new("L", (200, 200), 128)]
    path = save(Image.merge("LAB", planes), tmp_path / "a.tif")
    found = read_picture(path, DIGIT)
    assert found.steps[0] == "lightness_alone"
    expected = read_picture(save(bar(), tmp_path / "b.png"), DIGIT)
    np.testing.assert_array_equal(found.image, expected.image)
    assert read_picture(path, (3, 32, 32)).image.shape == (3, 32, 32)


def test_raw_is_the_whole_picture_scaled(tmp_path):
    picture = bar((280, 140), (0, 0, 139, 139))
    raw = Preparation(raw=True)
    found = read_picture(save(picture, tmp_path / "a.png"), DIGIT, raw)
    assert found.steps == ("scale",)
    assert found.image[0, :, :13].max() == 0
    assert found.image[0, :, 15:].min() == 255
    turned = read_picture(tmp_path / "a.png", DIGIT, Preparation(raw=True, invert=True))
    assert turned.steps == ("scale", "invert")
    np.testing.assert_array_equal(turned.image, 255 - found.image)


def test_raw_leaves_a_picture_of_the_right_size_alone(tmp_path):
    picture = bar((28, 28), (10, 3, 14, 24))
    found = read_picture(save(picture, tmp_path / "a.png"), DIGIT, Preparation(raw=True))
    np.testing.assert_array_equal(found.image[0], np.asarray(picture))
    assert found.steps == ()


def test_a_network_of_other_things_gets_no_digit_prepared(tmp_path):
    path = save(bar((280, 140)), tmp_path / "a.png")
    found = read_picture(path, DIGIT, Preparation(digits=False))
    assert found.steps == ("centre_crop", "scale")
    assert np.flatnonzero((found.image[0] < 60).any(0)).tolist() == [4, 5, 6, 7]
    turned = read_picture(path, DIGIT, Preparation(digits=False, invert=True))
    assert turned.steps[-1] == "invert"
    np.testing.assert_array_equal(turned.image, 255 - found.image)


def test_a_prepared_picture_is_inverted_where_that_is_asked_for(tmp_path):
    """Dark ink on a dark page is what the user says it is."""
    picture = Image.new("L", (28, 28), 60)
    ImageDraw.Draw(picture).rectangle((12, 4, 15, 23), fill=0)
    path = save(picture, tmp_path / "a.png")
    assert read_picture(path, DIGIT).steps == ()
    found = read_picture(path, DIGIT, Preparation(invert=True))
    assert found.steps[0] == "invert"
    assert found.image.max() == 255


@settings(max_examples=60, deadline=None)
@given(
    pixels=arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=70)),
    invert=st.sampled_from([None, True, False]),
)
def test_any_pixels_at_all_give_an_input_or_a_clear_error(pixels, invert):
    with contextlib.suppress(DatasetError):
        field = prepare_digit(pixels, "it", [], invert)
        assert field.shape == (28, 28)
        assert field.dtype == np.uint8
        assert field.max() == 255


def test_a_channel_count_without_pictures_is_refused(tmp_path):
    refuse(save(bar(), tmp_path / "a.png"), "needs 4 channels", (4, 28, 28))


@pytest.mark.parametrize("pen", [2, 5, 40])
def test_a_fine_pen_becomes_as_broad_as_mnists(tmp_path, pen):
    picture = Image.new("L", (300, 300), 255)
    ImageDraw.Draw(picture).line((150, 50, 150, 250), fill=0, width=pen)
    found = read_picture(save(picture, tmp_path / "a.png"), DIGIT)
    assert ("thicken" in found.steps) == (pen < 40)
    # Ink across the middle of the stroke, in pixels: a fine line becomes 2, a broad one stays 4.
    across = found.image[0, 12:16].astype(float).sum(1) / 255
    assert across == pytest.approx(max(2.0, pen / 10), abs=0.35)


@pytest.mark.parametrize(
    ("size", "turned", "shape", "scale"),
    [
        ((48, 40), 1, (12, 10), 4),
        ((48, 40), 1, (13, 10), 2),
        ((48, 40), 1, (12, 11), 2),
        ((48, 40), 6, (10, 12), 4),
        ((48, 40), 5, (10, 13), 2),
        ((48, 40), 4, (12, 10), 4),
        ((48, 40), 1, (25, 20), 1),
        ((160, 88), 1, (20, 11), 8),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_draft_is_of_the_smallest_scale_that_suffices(
    tmp_path, size, turned, shape, scale, channels
):
    """size, shape: (height, width), those of the input being upright."""
    draw = np.random.default_rng(3).integers(0, 256, (4, 5, 3), np.uint8)
    picture = Image.fromarray(draw).resize(size[::-1], Image.Resampling.BICUBIC)
    exif = Image.Exif()
    exif[0x0112] = turned
    picture.save(tmp_path / "a.jpg", exif=exif, quality=95)
    whole, draft = (Preparation(False, raw=True, draft=draft) for draft in (False, True))
    wanted = read_picture(tmp_path / "a.jpg", (channels, *shape), whole)
    found = read_picture(tmp_path / "a.jpg", (channels, *shape), draft)
    assert ("draft" in found.steps, "draft" in wanted.steps) == (scale > 1, False)
    with Image.open(tmp_path / "a.jpg") as own:
        own.draft(None, (own.width // scale, own.height // scale))
        own.load()
        smaller = ImageOps.exif_transpose(own).convert("L" if channels == 1 else "RGB")
    assert max(smaller.size) == max(size) // scale
    again = as_picture(smaller, "a", (channels, *shape), whole)
    np.testing.assert_array_equal(found.image, again.image)
    assert np.abs(found.image.astype(int) - wanted.image).max() <= 16
