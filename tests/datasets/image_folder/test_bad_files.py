"""Files that are no pictures, links, and more than fits into memory."""

from __future__ import annotations

import logging
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import image_folder, load
from dnnstack.datasets.integer_pixels import Reading
from PIL import Image

from ...support.picture_folders import OPTIONS, ORDER, forbid_decoding, giant, paint


def _text(path: Path) -> None:
    path.write_text("not a picture")


def _nothing(path: Path) -> None:
    path.write_bytes(b"")


def _half(path: Path) -> None:
    paint(path, 3, (200, 300))
    path.write_bytes(path.read_bytes()[:2000])


def _dangling(path: Path) -> None:
    path.symlink_to("/nowhere/at/all.png")


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


BAD = [
    (_text, "is not a picture of a known format"),
    (_nothing, "is empty, 0 bytes"),
    (_half, "the picture is damaged or cannot be read"),
    (giant, "has far too many pixels; scale it down first"),
    (_dangling, "no such file"),
    (_pipe, "is not a file"),
    (_endless, "is not a file"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_bad_file_is_named(root, make, message):
    make(root / "flowers" / "rose" / "bad.png")
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=rf"rose/bad\.png: .*{message}.*on_error: skip"):
            load("image_folder", "train", root=root, options=OPTIONS)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_bad_files_are_skipped_by_choice_and_named_each_time(root, caplog):
    clean = load("image_folder", "train", root=root, options=OPTIONS)
    for number, (make, _) in enumerate(BAD):
        make(root / "flowers" / "rose" / f"bad{number}.png")
    for _ in range(2):
        caplog.clear()
        data = load("image_folder", "train", root=root, options={**OPTIONS, "on_error": "skip"})
        np.testing.assert_array_equal(data.images, clean.images)
        np.testing.assert_array_equal(data.labels, clean.labels)
        # Those that are left out do not shift the names of the others.
        assert data.sources == tuple(str(root / "flowers" / name) for name in ORDER)
        warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warned) == len(BAD)
        for number, (text, (_, reason)) in enumerate(zip(warned, BAD, strict=True)):
            assert f"rose/bad{number}.png is left out: " in text
            assert reason in text
            assert text.count(".png") == 1
    with pytest.raises(DatasetError, match=r"rose/bad0\.png: "):
        load("image_folder", "train", root=root, options=OPTIONS)


def test_a_file_that_can_be_read_again_is_taken_again(root, caplog, monkeypatch):
    """Its rights changed, which its size and time do not tell."""
    options = {**OPTIONS, "on_error": "skip"}
    right, opened = image_folder.open_picture, []

    def barred(path: Path, steps: list[str], *rest: Reading) -> Image.Image:
        opened.append(path.name)
        if path.parent.name == "tulip" and path.name == "1.JPG":
            raise DatasetError(f"{path}: cannot be read: Permission denied")
        return right(path, steps, *rest)

    monkeypatch.setattr(image_folder, "open_picture", barred)
    for asked in (len(ORDER), 1):
        assert len(load("image_folder", "train", root=root, options=options)) == len(ORDER) - 1
        # Later starts look at the one alone.
        assert len(opened) == asked
        opened.clear()
    assert caplog.messages[-1].endswith("1.JPG is left out: cannot be read: Permission denied")
    monkeypatch.undo()
    caplog.clear()
    for _ in range(2):
        found = load("image_folder", "train", root=root, options=options)
        assert len(found) == len(ORDER)
        assert not caplog.messages


def test_only_some_of_many_skipped_files_are_named(root, caplog):
    for number in range(13):
        _text(root / "flowers" / "rose" / f"bad{number}.png")
    load("image_folder", "train", root=root, options={**OPTIONS, "on_error": "skip"})
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warned) == 11
    assert warned[-1].endswith("3 more files are left out")


def test_a_class_of_which_nothing_can_be_read_is_an_error(root):
    _text(root / "unseen" / "rose" / "x.png")
    with pytest.raises(DatasetError, match="unseen/rose: none of its pictures can be read"):
        load("image_folder", "test", root=root, options={**OPTIONS, "on_error": "skip"})


def test_links_are_followed_but_not_in_circles(root):
    clean = load("image_folder", "train", root=root, options=OPTIONS)
    rose = root / "flowers" / "rose"
    os.rename(rose, root / "roses")
    rose.symlink_to(root / "roses", target_is_directory=True)
    (root / "roses" / "again").symlink_to(root / "roses", target_is_directory=True)
    (root / "roses" / "deep").mkdir()
    (root / "roses" / "deep" / "up").symlink_to(root / "roses", target_is_directory=True)
    os.rename(root / "roses" / "2.gif", root / "roses" / "deep" / "2.gif")
    data = load("image_folder", "train", root=root, options=OPTIONS)
    np.testing.assert_array_equal(data.images, clean.images)


def test_more_than_fits_anywhere_is_refused_before_it_is_read(root, monkeypatch, cache):
    cache.write_text("")
    sizes = {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 1000}
    monkeypatch.setattr("dnnstack.common.machine.os.sysconf", sizes.__getitem__)
    forbid_decoding(monkeypatch)
    with pytest.raises(DatasetError, match=r"9 pictures of 3x8x12 take .* choose a smaller size"):
        load("image_folder", "train", root=root, options=OPTIONS)


def test_an_error_does_not_wait_for_the_rest(root, monkeypatch):
    """Beyond a bad file only so many are begun as two threads may be ahead: two chunks each."""
    monkeypatch.setattr("dnnstack.datasets.image_folder._CHUNK", 1)
    monkeypatch.setattr("dnnstack.datasets.image_folder.decoding_threads", lambda: 2)
    _text(root / "flowers" / "aster" / "0.png")
    chunk = {"aster/0.png", "aster/1.JPG", "rose/0.png", "rose/1.JPG"}
    seen: set[str] = set()
    too_far = threading.Event()
    from dnnstack.datasets.image_folder import open_picture

    def watched(path: Path, steps: list[str], *rest: Reading) -> Image.Image:
        name = f"{path.parent.name}/{path.name}"
        seen.add(name)
        if name not in chunk:
            too_far.set()
        elif name == "aster/0.png":
            # Time for the other threads to go where they should not.
            too_far.wait(0.3)
        return open_picture(path, steps, *rest)

    monkeypatch.setattr("dnnstack.datasets.image_folder.open_picture", watched)
    with pytest.raises(DatasetError, match=r"aster/0\.png"):
        load("image_folder", "train", root=root, options=OPTIONS)
    assert "aster/0.png" in seen
    assert seen <= chunk
