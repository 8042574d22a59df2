from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import find_pictures
from dnnstack.datasets.picture_files import FORMATS, open_picture
from dnnstack.datasets.picture_kinds import SUFFIXES
from PIL import Image

from ..support.stored import cases


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A folder with files of many names, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    for name in (
        *("b.png", "a.JPG", "notes.txt", ".hidden.png", "c[1].png", "c1.png"),
        *("sub/z.webp", "sub/deep/y.tiff", "sub/readme", ".git/x.png", "other/w.pgm"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    return tmp_path


def found(names: Iterable[str | Path]) -> list[str]:
    return [str(path) for path in find_pictures(names)]


def test_a_file_is_itself_whatever_its_name(tree):
    assert found(["notes.txt", Path("b.png"), "missing.png"]) == [
        *("notes.txt", "b.png", "missing.png")
    ]


def test_a_folder_is_the_pictures_below_it_sorted(tree):
    assert found(["."]) == [
        *("a.JPG", "b.png", "c1.png", "c[1].png"),
        *("other/w.pgm", "sub/z.webp", "sub/deep/y.tiff"),
    ]
    assert found(["sub/"]) == ["sub/z.webp", "sub/deep/y.tiff"]


def test_a_folder_without_pictures_is_an_error(tree):
    (error,) = find_pictures(["empty"])
    assert isinstance(error, DatasetError)
    assert str(error).startswith("empty: no picture in this folder; looked for PNG, JPEG")


def test_a_folder_that_cannot_be_read_is_an_error(tree, monkeypatch):
    real = os.scandir

    def refusing(path: str) -> Iterator[os.DirEntry[str]]:
        if os.fspath(path) == "sub":
            raise PermissionError(errno.EACCES, "Permission denied", "sub")
        return real(path)

    # File modes would not do: the superuser may read everything.
    monkeypatch.setattr(os, "scandir", refusing)
    (nameless,) = find_pictures([""])
    assert str(nameless) == "the path of a picture is empty"
    (error,) = find_pictures(["sub"])
    assert isinstance(error, DatasetError)
    assert str(error) == "sub: cannot be read: Permission denied"


@pytest.mark.parametrize(("pattern", "expected"), cases(__file__, "a_pattern_is_what_it_matches"))
def test_a_pattern_is_what_it_matches(tree, pattern, expected):
    assert found([pattern]) == expected


def test_a_pattern_without_a_match_is_an_error_and_the_rest_goes_on(tree):
    error, other = find_pictures(["*.bmp", "b.png"])
    assert isinstance(error, DatasetError)
    assert str(error) == "*.bmp: no file matches this pattern"
    assert other == Path("b.png")


def test_every_suffix_is_that_of_a_format_that_is_read():
    Image.init()
    for suffix in SUFFIXES:
        assert Image.EXTENSION[suffix] in FORMATS


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_wide_pixels_are_converted_some_rows_at_a_time(tmp_path, mode):
    high, wide = 2000, 700
    kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
    values = np.random.default_rng(0).integers(0, 1 << 16, (high, wide)).astype(kind)
    if mode == "F":
        values = values / np.float32(65535)
    path = tmp_path / "a.tif"
    Image.fromarray(values).save(path)
    tracemalloc.start()
    try:
        steps: list[str] = []
        found = np.asarray(open_picture(path, steps))
        # Copies of the whole picture in eight bytes a pixel would be twice that and more.
        assert tracemalloc.get_traced_memory()[1] < 12 * values.size
    finally:
        tracemalloc.stop()
    scaled = np.rint(values.astype(np.float64) * 255.0)
    np.testing.assert_array_equal(found, scaled if mode == "F" else values >> 8)
    assert steps == ["float_to_8_bits" if mode == "F" else "16_to_8_bits"]


def opened(path: Path, rows: list[list[float]], kind: type) -> list[list[int]]:
    Image.fromarray(np.array(rows, kind)).save(path)
    found: list[list[int]] = np.asarray(open_picture(path, [])).tolist()
    return found


@pytest.mark.parametrize(
    ("pixels", "expected"), cases(__file__, "floating_point_pixels_are_0_to_1_or_0_to_255")
)
def test_floating_point_pixels_are_0_to_1_or_0_to_255(tmp_path, pixels, expected):
    assert opened(tmp_path / "a.tif", [pixels], np.float32) == [expected]


@pytest.mark.parametrize("name", ["a.tif", "a.png", "a.pgm"])
def test_pixels_of_16_bits_lose_the_lower_eight(tmp_path, name):
    pixels = [0, 255, 256, 4095, 65535]
    assert opened(tmp_path / name, [pixels], np.uint16) == [[0, 0, 1, 15, 255]]


@pytest.mark.parametrize(
    ("pixels", "kind", "message"),
    [
        ([-5.0, 900.0], np.float32, "from -5 to 900; floating-point pixels must be from 0 to 1 or"),
        ([0.0, 4095.0], np.float32, "from 0 to 4095; floating-point pixels must be from 0 to 1 or"),
        ([-0.5, 0.5], np.float32, "from -0.5 to 0.5; floating-point .* 255: scale them first"),
        ([-5, 300], np.int32, "from -5 to 300; integers must be from 0 to 65535: scale them"),
        ([0, 70000], np.int32, "from 0 to 70000; integers must be from 0 to 65535: scale"),
    ],
)
def test_other_numbers_are_refused(tmp_path, pixels, kind, message):
    with pytest.raises(DatasetError, match=f"a.tif: has pixels {message}"):
        opened(tmp_path / "a.tif", [pixels], kind)
