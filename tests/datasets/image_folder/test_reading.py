"""Folders of pictures: what they are read as, cached, held out, and refused for."""

from __future__ import annotations

import os
from pathlib import Path
from threading import get_ident
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import describe, image_folder, load
from dnnstack.datasets.class_folders import PictureFile, held_out
from hypothesis import given
from hypothesis import strategies as st

from ...support.picture_folders import OPTIONS, ORDER, expected, forbid_decoding, paint


@pytest.mark.parametrize("fit", ["crop", "resize"])
@pytest.mark.parametrize("mode", ["rgb", "grey"])
def test_pictures_are_what_predict_makes_of_them(root, fit, mode):
    options = {**OPTIONS, "fit": fit, "mode": mode}
    info = describe("image_folder", options=options, root=root)
    channels = 3 if mode == "rgb" else 1
    assert (info.shape, info.classes) == ((channels, 8, 12), ("aster", "rose", "tulip"))
    for _ in range(2):
        data = load("image_folder", "train", root=root, options=options)
        assert (data.name, data.classes) == ("image_folder/train", info.classes)
        np.testing.assert_array_equal(data.labels, [0, 0, 1, 1, 1, 2, 2, 2, 2])
        wanted = expected(root / "flowers", ORDER, info.shape, fit == "resize")
        np.testing.assert_array_equal(data.images, wanted)
    drafted = load("image_folder", "train", root=root, options={**options, "draft": True})
    wanted = expected(root / "flowers", ORDER, info.shape, fit == "resize", draft=True)
    np.testing.assert_array_equal(drafted.images, wanted)
    # Of these files alone, half the size suffices.
    other = (drafted.images != data.images).any((1, 2, 3))
    assert [name for name, each in zip(ORDER, other, strict=True) if each] == [
        name for name in ORDER if name.endswith(".JPG")
    ]
    test = load("image_folder", "test", root=root, options=options)
    names = [f"{name}/x.png" for name in info.classes]
    wanted = expected(root / "unseen", names, info.shape, fit == "resize")
    np.testing.assert_array_equal(test.images, wanted)
    np.testing.assert_array_equal(test.labels, [0, 1, 2])


@pytest.mark.parametrize(("threads", "chunk"), [(1, 1), (2, 3), (7, 2), (32, 16)])
def test_threads_and_chunks_change_no_bit(root, cache, monkeypatch, threads, chunk):
    wanted = expected(root / "flowers", ORDER, (3, 8, 12), False)
    used = set()
    real = image_folder.open_picture

    def noted(*given: Any) -> Any:
        used.add(get_ident())
        return real(*given)

    monkeypatch.setattr(image_folder, "open_picture", noted)
    monkeypatch.setattr(image_folder, "decoding_threads", lambda: threads)
    monkeypatch.setattr(image_folder, "_CHUNK", chunk)
    data = load("image_folder", "train", root=root, options=OPTIONS)
    np.testing.assert_array_equal(data.images, wanted)
    assert 1 <= len(used) <= threads


def test_as_many_threads_as_cores_decode(monkeypatch):
    for cores, memory, threads in ((1, 64, 1), (12, 64, 12), (200, 512, 32), (16, 4, 2), (2, 1, 1)):
        monkeypatch.setattr(image_folder, "available_threads", lambda cores=cores: cores)
        monkeypatch.setattr(image_folder, "main_memory", lambda memory=memory: memory << 30)
        assert image_folder.decoding_threads() == threads


def test_a_second_start_reads_no_picture(root, cache, monkeypatch):
    first = load("image_folder", "train", root=root, options=OPTIONS)
    forbid_decoding(monkeypatch)
    monkeypatch.setattr("dnnstack.datasets.image_folder.sha256_file", None)
    again = load("image_folder", "train", root=root, options=OPTIONS)
    np.testing.assert_array_equal(first.images, again.images)
    with pytest.raises(AssertionError, match="decoded again"):
        load("image_folder", "train", root=root, options={**OPTIONS, "size": (8, 13)})
    monkeypatch.setattr("dnnstack.datasets.image_folder._VERSION", 0)
    with pytest.raises(AssertionError, match="decoded again"):
        load("image_folder", "train", root=root, options=OPTIONS)


def test_without_a_test_folder_some_are_held_out(root):
    options = {"train": "flowers", "size": 8, "test_fraction": 0.4}
    rest = load("image_folder", "train", root=root, options=options)
    held = load("image_folder", "test", root=root, options=options)
    assert np.bincount(rest.labels).tolist() == [1, 2, 2]
    assert np.bincount(held.labels).tolist() == [1, 1, 2]
    together = sorted(image.tobytes() for image in (*rest.images, *held.images))
    whole = load("image_folder", "train", root=root, options={**options, "test": "unseen"})
    assert together == sorted(image.tobytes() for image in whole.images)
    again = load("image_folder", "test", root=root, options=options)
    np.testing.assert_array_equal(held.images, again.images)


@given(st.integers(2, 60), st.floats(0.01, 0.99))
def test_what_is_held_out(count, fraction):
    listed = [[PictureFile(f"a/{number}.png", 0, (1,)) for number in range(count)]]
    rest, held = held_out(listed, fraction)
    assert rest
    assert held
    assert abs(len(held) - count * fraction) <= 1
    assert sorted(p.name for p in (*rest, *held)) == sorted(p.name for p in listed[0])
    more = [PictureFile("a/another.png", 0, (1,)), *listed[0]]
    _, then = held_out([more], fraction)
    # Another picture pushes at most one out and lets at most one in, besides itself.
    assert len({p.name for p in held} ^ {p.name for p in then}) <= 2


def test_a_class_of_one_picture_leaves_none_to_test_on(root):
    (root / "flowers" / "aster" / "0.png").unlink()
    with pytest.raises(DatasetError, match=r"aster/1\.JPG is the only picture of its class"):
        load("image_folder", "train", root=root, options={"train": "flowers", "size": 8})


def test_classes_that_are_given_need_no_folder():
    nowhere = {"train": "/nowhere", "size": 224}
    info = describe("image_folder", options={**nowhere, "classes": 1000})
    assert (info.shape, len(info.classes), info.train_count) == ((3, 224, 224), 1000, None)
    named = describe("image_folder", options={**nowhere, "classes": ("b", "a")})
    assert named.classes == ("b", "a")
    with pytest.raises(DatasetError, match=r"image_folder\.train: there is no folder '/nowhere'"):
        describe("image_folder", options=nowhere)


def test_given_names_set_the_order_of_the_labels(root):
    options = {**OPTIONS, "classes": ("tulip", "aster", "rose")}
    data = load("image_folder", "train", root=root, options=options)
    assert data.classes == ("tulip", "aster", "rose")
    np.testing.assert_array_equal(data.labels, [0, 0, 0, 0, 1, 1, 2, 2, 2])
    counted = load("image_folder", "train", root=root, options={**OPTIONS, "classes": 3})
    assert counted.classes == ("aster", "rose", "tulip")


def _add_class(root: Path) -> None:
    paint(root / "unseen" / "weed" / "0.png", 5)


def _lose_class(root: Path) -> None:
    os.rename(root / "unseen" / "rose", root / "unseen" / ".rose")


def test_a_folder_of_hidden_files_is_no_class(root):
    (root / "flowers" / "mnist").mkdir()
    (root / "flowers" / "mnist" / ".download.lock").write_text("")
    assert describe("image_folder", options=OPTIONS, root=root).classes == (
        "aster",
        "rose",
        "tulip",
    )


def _empty(root: Path) -> None:
    os.rename(root / "unseen", root / "away")
    (root / "unseen").mkdir()


def _file(root: Path) -> None:
    os.rename(root / "unseen", root / "away")
    (root / "unseen").write_text("")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_add_class, r"unseen: its folders are not those of the 3 classes \(unknown: weed\)"),
        (_lose_class, r"\(missing: rose\)"),
        (_empty, "unseen: contains no folders; it should contain a folder of pictures for each"),
        (_file, "unseen: cannot be read: Not a directory"),
    ],
)
@pytest.mark.parametrize("split", ["test", "train"])
def test_a_folder_that_is_not_as_it_should_be(root, change, message, split):
    """Where it is the folder to test on, it is said before the training, not after it."""
    change(root)
    with pytest.raises(DatasetError, match=message):
        load("image_folder", split, root=root, options=OPTIONS)


def test_a_test_needs_no_pictures_to_train_on(root):
    os.rename(root / "flowers", root / "away")
    options = {**OPTIONS, "classes": ["aster", "rose", "tulip"]}
    assert len(load("image_folder", "test", root=root, options=options)) == 3


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "two\nlines", os.fsdecode(b"\xff\xfe")])
def test_class_names_that_would_garble_a_terminal_are_refused(root, name):
    (root / "flowers" / name).mkdir()
    with pytest.raises(DatasetError, match="rename the folder") as caught:
        describe("image_folder", options=OPTIONS, root=root)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option 'size': expects a number of pixels"),
        ({"train": "flowers"}, "option 'size': expects a number of pixels"),
    ],
)
def test_wrong_options_are_refused(root, options, message):
    with pytest.raises(DatasetError, match=message):
        describe("image_folder", options=options, root=root)


def test_a_number_of_classes_that_is_not_there_is_said(root):
    with pytest.raises(
        DatasetError, match="contains 3 class folders, but the config says classes: 4"
    ):
        load("image_folder", "train", root=root, options={**OPTIONS, "classes": 4})
