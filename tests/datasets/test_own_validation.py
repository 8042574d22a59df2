"""Validation samples of its own, which a data set declares by an option of that name."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Downloads, ImageSet, load, registry
from dnnstack.datasets.image_set import Dataset
from dnnstack.datasets.own_validation import with_validation

from ..support.deep_pixels import png_16, write
from ..support.picture_folders import OPTIONS, ORDER, expected, paint, root

__all__ = ["root"]


@pytest.fixture
def three(root):
    """Beside the pictures to train and to test on, two of one class to validate on."""
    for number, name in enumerate(("aster/0.png", "rose/red/new.jpg")):
        paint(root / "checked" / name, 50 + number)
    (root / "checked" / "tulip").mkdir()
    return root


def read(root: Path, split: str = "train", **options: object) -> ImageSet:
    given = {**OPTIONS, "validation": "checked", **options}
    return load("image_folder", split, root=root, options=given)


def test_they_stand_behind_those_to_train_on(three):
    found, alone = read(three), read(three, validation=None)
    names = ["aster/0.png", "rose/red/new.jpg"]
    np.testing.assert_array_equal(found.images[:9], alone.images)
    wanted = expected(three / "checked", names, (3, 8, 12), raw=False)
    np.testing.assert_array_equal(found.images[9:], wanted)
    assert found.labels.tolist() == [*alone.labels.tolist(), 0, 1]
    assert found.held.tolist() == [False] * 9 + [True] * 2
    assert alone.held is None
    # One of another folder has another name, though both are aster/0.png there.
    assert found.names == (*ORDER, *(f"../validation/{name}" for name in names))
    assert found.sources[9:] == tuple(str(three / "checked" / name) for name in names)
    assert (found.name, found.classes) == ("image_folder/train", alone.classes)
    assert found.identity.digest != alone.identity.digest
    assert len(found.contents) == len({*found.contents}) == 11
    assert not found.images.flags.writeable
    assert read(three, "validation").names == tuple(names)
    # A test does not ask for them.
    shutil.rmtree(three / "checked")
    assert len(read(three, "test")) == 3
    with pytest.raises(
        DatasetError, match=r"image_folder\.validation: there is no folder 'checked'"
    ):
        read(three)


def test_both_are_mapped_from_one_file_of_the_cache(three):
    first = read(three)
    assert isinstance(first.images, np.memmap)
    os.utime(three / "checked" / "aster" / "0.png")
    assert read(three).images.filename == first.images.filename
    paint(three / "checked" / "aster" / "0.png", 60)
    other = read(three)
    assert other.images.filename != first.images.filename
    wanted = expected(three / "checked", ["aster/0.png"], (3, 8, 12), raw=False)
    np.testing.assert_array_equal(other.images[9], wanted[0])
    # Only a part of what a file has is not that file, and another file may have changed.
    np.save(three / "mine.npy", other.images[:9])
    mine = np.load(three / "mine.npy", mmap_mode="r")
    given = read(three, validation=None), read(three, "validation")
    assert not isinstance(
        with_validation(replace(given[0], images=mine), given[1]).images, np.memmap
    )
    part = replace(read(three, "validation"), names=(), sources=(), contents=())
    parts = [
        replace(part, images=part.images[at:][:1], labels=part.labels[at:][:1]) for at in (0, 1)
    ]
    plain = replace(read(three, validation=None), names=(), sources=(), contents=(), doubts=())
    for each in parts:
        np.testing.assert_array_equal(with_validation(plain, each).images[9:], each.images)


def test_samples_that_are_taken_keep_their_part(three):
    found = read(three)
    rows = np.array([10, 2, 9], np.int32)
    taken = found.taken(rows, found.labels[rows], found.classes)
    assert taken.held.tolist() == [True, False, True]
    assert read(three, validation=None).taken(rows[1:2], rows[:1] * 0, found.classes).held is None


def test_held_out_test_pictures_stay_the_same(three):
    alone, found = (read(three, test=None, validation=own) for own in (None, "checked"))
    assert found.names[: len(alone)] == alone.names
    assert (
        read(three, "test", test=None).names
        == read(three, "test", test=None, validation=None).names
    )


def test_the_depth_is_that_of_the_pictures_to_train_on(tmp_path):
    for part, largest in (("train", 4000), ("val", 900), ("test", 900)):
        for name in ("a", "b"):
            pixels = np.full((4, 4, 1), largest, np.uint16)
            write(tmp_path / part / name / "0.png", png_16(pixels))
    options = {"train": "train", "validation": "val", "test": "test", "size": 4, "mode": "grey"}
    found = load("image_folder", "train", root=tmp_path, options=options)
    assert found.bits == 12
    assert found.images[:, 0, 0, 0].tolist() == [4000 >> 4] * 2 + [900 >> 4] * 2


def test_what_cannot_be_validated_on_names_the_folder(three):
    (three / "checked" / "tulip").rmdir()
    with pytest.raises(DatasetError, match=r"checked: its folders are not those .*missing: tulip"):
        read(three)
    shutil.rmtree(three / "checked")
    (three / "checked" / "tulip").mkdir(parents=True)
    (three / "checked" / "rose").mkdir()
    (three / "checked" / "aster").mkdir()
    with pytest.raises(DatasetError, match=r"checked: contains no folders with pictures"):
        read(three)
    for name in ("aster", "rose", "tulip"):
        (three / "checked" / name / "torn.png").write_bytes(b"torn")
    with pytest.raises(DatasetError, match=r"checked/aster: none of its pictures can be read"):
        read(three, on_error="skip")


@dataclass(frozen=True)
class Drawn(Dataset):
    """A data set that only says so with its option, and whose samples have no names."""

    validation: int | None = None
    height: int = 2
    classes: tuple[str, ...] = ("a", "b")

    def load(self, split, root: Path, downloads: Downloads) -> ImageSet:
        count = {"train": 4, "validation": self.validation or 0, "test": 3}[split]
        sides = (1, self.height, 2) if split == "validation" else (1, 2, 2)
        images = np.arange(count * sides[1] * 2).reshape(count, *sides).astype(np.uint8)
        classes = self.classes if split == "validation" else ("a", "b")
        labels = (np.arange(count) % 2).astype(np.int32)
        return ImageSet(f"drawn/{split}", images, labels, classes, key=f"{split} {count}")


def test_an_option_declares_them(tmp_path, monkeypatch):
    monkeypatch.setitem(registry.DATASETS, "drawn", Drawn())

    def drawn(**options: object) -> ImageSet:
        return load("drawn", "train", root=tmp_path, options=options)

    assert drawn().held is None
    found, other = drawn(validation=3), drawn(validation=2)
    assert found.held.tolist() == [False] * 4 + [True] * 3
    assert (found.names, found.key, len(found.images)) == ((), "train 4 validation 3", 7)
    assert found.identity.digest != other.identity.digest
    for text, options in (
        ("drawn/validation: there are no samples to validate on", {"validation": 0}),
        ("other classes or another shape than drawn/train", {"validation": 3, "height": 3}),
        ("other classes or another shape", {"validation": 3, "classes": ("b", "a")}),
    ):
        with pytest.raises(DatasetError, match=text):
            drawn(**options)
    hashed = with_validation(replace(found, held=None, key=""), drawn())
    assert hashed.key == ""
