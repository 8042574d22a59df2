"""Pictures with integer pixels: one depth for all of a set, by those that are trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet, image_folder, load
from dnnstack.datasets.image_set import Split
from PIL import Image

from ...support.deep_pixels import png_16, tiff_16, write
from ...support.picture_folders import forbid_decoding

OPTIONS = {"train": "pics", "test": "tests", "size": 6, "mode": "grey"}
Fill = Callable[..., None]


def paint(path: Path, most: int, form: str = "png") -> None:
    """A picture from 0 to ``most``."""
    pixels = np.linspace(0, most, 36).astype(np.int64).reshape(6, 6)
    if form in ("png", "tif"):
        path.parent.mkdir(parents=True, exist_ok=True)
        kind = np.uint16 if form == "png" else np.int32
        Image.fromarray(pixels.astype(kind)).save(path, {"png": "PNG", "tif": "TIFF"}[form])
    else:
        colours = pixels[..., None].repeat(3, 2)
        write(path, png_16(colours) if form == "rgb" else tiff_16(colours))


@pytest.fixture
def root(tmp_path):
    for name in "ab":
        for number in range(3):
            paint(tmp_path / "pics" / name / f"{number}.tif", 200 + number)
        paint(tmp_path / "tests" / name / "x.tif", 100)
    return tmp_path


def read(root: Path, split: Split = "train", **options: object) -> ImageSet:
    return load("image_folder", split, root=root, options={**OPTIONS, **options})


@pytest.mark.parametrize("form", ["png", "tif", "rgb", "rgb tif"])
@pytest.mark.parametrize(
    ("most", "bits"), [(255, 8), (256, 10), (1023, 10), (1024, 12), (4095, 12), (4096, 16)]
)
def test_the_largest_value_of_the_training_set_decides(root, caplog, form, most, bits):
    paint(root / "pics" / "a" / "1.tif", most, form)
    for _ in range(2):
        caplog.clear()
        data = read(root)
        assert data.bits == bits
        assert data.images.max(axis=(1, 2, 3)).tolist() == [
            value >> (bits - 8) for value in (200, most, 202, 200, 201, 202)
        ]
        (told,) = caplog.messages
        assert told.startswith(f"{root / 'pics'}: 6 pictures have integer pixels; {bits} bits are")
        assert told.endswith(f"as their largest is {most}")


def test_the_other_pictures_are_as_they_were(root, caplog):
    Image.new("L", (6, 6), 77).save(root / "pics" / "b" / "plain.png")
    assert read(root).images[-1].tolist() == [[[77] * 6] * 6]
    assert "6 pictures" in caplog.text
    for path in (root / "pics").rglob("*.tif"):
        Image.new("L", (6, 6), 78).save(path)
    caplog.clear()
    data = read(root)
    assert (data.bits, caplog.messages) == (None, [])


def test_test_pictures_are_read_as_those_that_are_trained_on(root, caplog):
    assert read(root, "test").images.max() == 100
    paint(root / "tests" / "a" / "x.tif", 300)
    for _ in range(2):
        caplog.clear()
        test = read(root, "test")
        assert (test.bits, test.images.max(axis=(1, 2, 3)).tolist()) == (8, [255, 100])
        assert caplog.messages[-1] == (
            f"{root / 'tests'}: 1 have larger integers, which become white: a/x.tif"
        )
    # Of the folder of tests nothing changes, and yet its pictures are read otherwise.
    paint(root / "pics" / "a" / "1.tif", 4000)
    again = read(root, "test")
    assert (again.bits, again.images.max(axis=(1, 2, 3)).tolist()) == (12, [18, 6])


@pytest.mark.parametrize("form", ["tif", "rgb"])
def test_test_pictures_of_a_net_trained_on_plain_ones(root, form):
    for path in (root / "pics").rglob("*.tif"):
        Image.new("L", (6, 6), 78).save(path)
    paint(root / "tests" / "a" / "x.tif", 300, form)
    test = read(root, "test")
    assert (test.bits, test.images[0].max()) == (16, 1)


def test_pictures_held_out_for_testing_do_not_decide(root):
    options = {"test": None, "test_fraction": 0.3}
    held = {source.rpartition("pics/")[2] for source in read(root, "test", **options).sources}
    for name in held:
        paint(root / "pics" / name, 5000)
    assert read(root, **options).bits == 8
    test = read(root, "test", **options)
    assert (test.bits, test.images.max(axis=(1, 2, 3)).tolist()) == (8, [255] * len(held))


def test_a_depth_that_is_given_holds(root, caplog):
    paint(root / "pics" / "a" / "1.tif", 3000)
    for bits in (16, 8, 12, 10):
        data = read(root, bits=bits)
        wanted = [min(v, 2**bits - 1) >> (bits - 8) for v in (200, 3000, 202, 200, 201, 202)]
        assert (data.bits, data.images.max(axis=(1, 2, 3)).tolist()) == (bits, wanted)
        assert f"{bits} bits are taken of them, as in training" in caplog.text
    assert "1 have larger integers, which become white: a/1.tif" in caplog.messages[-1]
    assert read(root, "test", bits=12).images.max() == 6


def test_a_second_start_reads_no_picture(root, monkeypatch):
    paint(root / "pics" / "a" / "1.tif", 3000)
    first = {split: read(root, split) for split in ("train", "test")}
    forbid_decoding(monkeypatch)
    for split, data in first.items():
        np.testing.assert_array_equal(read(root, split).images, data.images)


def test_only_those_of_another_depth_are_read_twice(root, monkeypatch):
    paint(root / "pics" / "a" / "1.tif", 3000)
    paint(root / "pics" / "b" / "1.tif", 2000)
    real, opened = image_folder.open_picture, list[str]()

    def noted(path: Path, *rest: object) -> Image.Image:
        opened.append(f"{path.parent.name}/{path.name}")
        return real(path, *rest)

    monkeypatch.setattr(image_folder, "open_picture", noted)
    read(root)
    twice = ["a/0.tif", "a/2.tif", "b/0.tif", "b/2.tif"]
    assert sorted(opened) == sorted([*twice, *twice, "a/1.tif", "b/1.tif"])


@pytest.mark.parametrize("wrong", [-1, 65536])
def test_what_fits_no_depth_names_its_file(root, wrong):
    Image.fromarray(np.full((6, 6), wrong, np.int32)).save(root / "pics" / "b" / "0.tif")
    with pytest.raises(DatasetError, match=rf"b/0\.tif: has pixels from {wrong} to {wrong}; "):
        read(root)
    data = read(root, on_error="skip")
    assert (len(data), data.bits) == (5, 8)
