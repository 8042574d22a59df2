from __future__ import annotations

import logging
import os
import struct
import threading
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Preparation, describe, files, image_folder, load, read_picture
from dnnstack.datasets.class_folders import PictureFile, held_out
from dnnstack.datasets.image_set import Split
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

Options = dict[str, object]
OPTIONS: Options = {"train": "flowers", "test": "unseen", "size": (8, 12)}


def paint(path: Path, seed: int, size: tuple[int, int] = (20, 30), mode: str = "RGB") -> None:
    """A picture of random smooth colours; size: (height, width)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (4, 5, 3) if mode == "RGB" else (4, 5)
    pixels = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BICUBIC).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes: 3, 2 and 4 pictures to train on, one each to test on."""
    folder = tmp_path / "data"
    for name, count in (("rose", 3), ("aster", 2), ("tulip", 4)):
        for number in range(count):
            suffix = (".png", ".JPG", ".gif")[number % 3]
            size = (20 + 3 * number, 30)
            paint(folder / "flowers" / name / f"{number}{suffix}", hash_of(name) + number, size)
        paint(folder / "unseen" / name / "x.png", hash_of(name) + 9)
    return folder


def hash_of(name: str) -> int:
    return sum(name.encode()) * 100


def expected(folder: Path, names: list[str], shape: tuple[int, int, int], raw: bool) -> np.ndarray:
    how = Preparation(digits=False, raw=raw)
    return np.stack([read_picture(folder / name, shape, how).image for name in names])


ORDER = ["aster/0.png", "aster/1.JPG", "rose/0.png", "rose/1.JPG", "rose/2.gif"]
ORDER += ["tulip/0.png", "tulip/1.JPG", "tulip/2.gif", "tulip/3.png"]


@pytest.mark.parametrize("fit", ["crop", "resize"])
@pytest.mark.parametrize("mode", ["rgb", "grey"])
def test_pictures_are_what_predict_makes_of_them(root: Path, fit: str, mode: str) -> None:
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
    test = load("image_folder", "test", root=root, options=options)
    names = [f"{name}/x.png" for name in info.classes]
    wanted = expected(root / "unseen", names, info.shape, fit == "resize")
    np.testing.assert_array_equal(test.images, wanted)
    np.testing.assert_array_equal(test.labels, [0, 1, 2])


def forbid_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("a picture was decoded again")

    monkeypatch.setattr("dnnstack.datasets.image_folder.open_picture", fail)


def test_a_second_start_reads_no_picture(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_cache_is_keyed_by_content(root: Path, cache: Path) -> None:
    load("image_folder", "train", root=root, options=OPTIONS)
    os.rename(root / "flowers", root / "moved")
    moved = {**OPTIONS, "train": str(root / "moved"), "test": str(root / "unseen")}
    load("image_folder", "train", root=Path("elsewhere"), options=moved)
    assert len(list((cache / "decoded").glob("image_folder-train-*"))) == 1
    paint(root / "moved" / "rose" / "0.png", 77)
    load("image_folder", "train", root=root, options=moved)
    assert len(list((cache / "decoded").glob("image_folder-train-*"))) == 2


def test_a_changed_picture_is_noticed(root: Path) -> None:
    before = load("image_folder", "train", root=root, options=OPTIONS).images.copy()
    paint(root / "flowers" / "rose" / "1.JPG", 78)
    after = load("image_folder", "train", root=root, options=OPTIONS).images
    differs = (before != after).any((1, 2, 3))
    assert differs.tolist() == [name == "rose/1.JPG" for name in ORDER]


def test_without_a_test_folder_some_are_held_out(root: Path) -> None:
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
def test_what_is_held_out(count: int, fraction: float) -> None:
    listed = [[PictureFile(f"a/{number}.png", 0, 1, 1) for number in range(count)]]
    rest, held = held_out(listed, fraction)
    assert rest
    assert held
    assert abs(len(held) - count * fraction) <= 1
    assert sorted(p.name for p in (*rest, *held)) == sorted(p.name for p in listed[0])
    more = [PictureFile("a/another.png", 0, 1, 1), *listed[0]]
    _, then = held_out([more], fraction)
    # Another picture pushes at most one out and lets at most one in, besides itself.
    assert len({p.name for p in held} ^ {p.name for p in then}) <= 2


def test_a_class_of_one_picture_leaves_none_to_test_on(root: Path) -> None:
    (root / "flowers" / "aster" / "0.png").unlink()
    with pytest.raises(DatasetError, match=r"aster/1\.JPG is the only picture of its class"):
        load("image_folder", "train", root=root, options={"train": "flowers", "size": 8})


def test_classes_that_are_given_need_no_folder() -> None:
    nowhere = {"train": "/nowhere", "size": 224}
    info = describe("image_folder", options={**nowhere, "classes": 1000})
    assert (info.shape, len(info.classes), info.train_count) == ((3, 224, 224), 1000, None)
    named = describe("image_folder", options={**nowhere, "classes": ("b", "a")})
    assert named.classes == ("b", "a")
    with pytest.raises(DatasetError, match="/nowhere: cannot be read"):
        describe("image_folder", options=nowhere)


def test_given_names_set_the_order_of_the_labels(root: Path) -> None:
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


def _empty_class(root: Path) -> None:
    (root / "unseen" / "rose" / "x.png").unlink()
    (root / "unseen" / "rose" / "notes.txt").write_text("no picture")
    (root / "unseen" / "rose" / ".hidden.png").write_bytes(b"")


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
        (_empty_class, r"unseen/rose: no picture in this class folder; looked for \.png"),
        (_empty, "unseen: contains no folders; it should contain a folder of pictures for each"),
        (_file, r"unseen: cannot be read \(Not a directory\)"),
    ],
)
@pytest.mark.parametrize("split", ["test", "train"])
def test_a_folder_that_is_not_as_it_should_be(
    root: Path, change: Callable[[Path], None], message: str, split: Split
) -> None:
    """Where it is the folder to test on, it is said before the training, not after it."""
    change(root)
    with pytest.raises(DatasetError, match=message):
        load("image_folder", split, root=root, options=OPTIONS)


def test_a_test_needs_no_pictures_to_train_on(root: Path) -> None:
    os.rename(root / "flowers", root / "away")
    options = {**OPTIONS, "classes": ["aster", "rose", "tulip"]}
    assert len(load("image_folder", "test", root=root, options=options)) == 3


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "two\nlines", os.fsdecode(b"\xff\xfe")])
def test_class_names_that_would_garble_a_terminal_are_refused(root: Path, name: str) -> None:
    (root / "flowers" / name).mkdir()
    with pytest.raises(DatasetError, match="rename the folder") as caught:
        describe("image_folder", options=OPTIONS, root=root)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 8}, "option 'train': expects a folder"),
        ({"train": "flowers"}, "option 'size': expects a number of pixels"),
        ({"train": "flowers", "size": (0, 8)}, "option 'size'"),
        ({"train": "flowers", "size": 5000}, "option 'size'"),
        ({**OPTIONS, "fit": "stretch"}, "option 'fit': expects crop or resize, got 'stretch'"),
        ({**OPTIONS, "mode": "cmyk"}, "option 'mode': expects rgb or grey"),
        ({**OPTIONS, "sizes": 3}, "no option 'sizes'"),
    ],
)
def test_wrong_options_are_refused(root: Path, options: Options, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        describe("image_folder", options=options, root=root)


def test_a_number_of_classes_that_is_not_there_is_said(root: Path) -> None:
    with pytest.raises(
        DatasetError, match="contains 3 class folders, but the config says classes: 4"
    ):
        load("image_folder", "train", root=root, options={**OPTIONS, "classes": 4})


def giant(path: Path) -> None:
    """A PNG of 30,000 x 30,000 pixels in 2 kB, which would decode to 2.7 GB."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", 30_000, 30_000, 8, 2, 0, 0, 0)
    data = zlib.compress(bytes(1_000_000))
    pieces = chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + pieces)


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
def test_a_bad_file_is_named(root: Path, make: Callable[[Path], None], message: str) -> None:
    make(root / "flowers" / "rose" / "bad.png")
    tracemalloc.start()
    try:
        with pytest.raises(DatasetError, match=rf"rose/bad\.png: .*{message}.*on_error: skip"):
            load("image_folder", "train", root=root, options=OPTIONS)
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


def test_bad_files_are_skipped_by_choice_and_named_each_time(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clean = load("image_folder", "train", root=root, options=OPTIONS)
    for number, (make, _) in enumerate(BAD):
        make(root / "flowers" / "rose" / f"bad{number}.png")
    for _ in range(2):
        caplog.clear()
        data = load("image_folder", "train", root=root, options={**OPTIONS, "on_error": "skip"})
        np.testing.assert_array_equal(data.images, clean.images)
        np.testing.assert_array_equal(data.labels, clean.labels)
        warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warned) == len(BAD)
        for number, (text, (_, reason)) in enumerate(zip(warned, BAD, strict=True)):
            assert f"rose/bad{number}.png is left out: " in text
            assert reason in text
            assert text.count(".png") == 1
    with pytest.raises(DatasetError, match=r"rose/bad0\.png: "):
        load("image_folder", "train", root=root, options=OPTIONS)


def test_a_file_that_can_be_read_again_is_taken_again(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rights changed, which its size and time do not tell."""
    options = {**OPTIONS, "on_error": "skip"}
    right, opened = image_folder.open_picture, []

    def barred(path: Path, steps: list[str]) -> Image.Image:
        opened.append(path.name)
        if path.parent.name == "tulip" and path.name == "1.JPG":
            raise DatasetError(f"{path}: cannot be read: Permission denied")
        return right(path, steps)

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


def test_only_some_of_many_skipped_files_are_named(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(13):
        _text(root / "flowers" / "rose" / f"bad{number}.png")
    load("image_folder", "train", root=root, options={**OPTIONS, "on_error": "skip"})
    warned = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warned) == 11
    assert warned[-1].endswith("3 more files are left out")


def test_a_class_of_which_nothing_can_be_read_is_an_error(root: Path) -> None:
    _text(root / "unseen" / "rose" / "x.png")
    with pytest.raises(DatasetError, match="unseen/rose: none of its pictures can be read"):
        load("image_folder", "test", root=root, options={**OPTIONS, "on_error": "skip"})


def test_links_are_followed_but_not_in_circles(root: Path) -> None:
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


def test_more_than_fits_into_memory_is_refused_before_it_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 1000}
    monkeypatch.setattr("dnnstack.datasets.image_folder.os.sysconf", sizes.__getitem__)
    forbid_decoding(monkeypatch)
    with pytest.raises(DatasetError, match=r"9 pictures of 3x8x12 take .* choose a smaller size"):
        load("image_folder", "train", root=root, options=OPTIONS)


def test_an_error_does_not_wait_for_the_rest(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a bad file no picture of a later chunk is begun; the rest of its own may be."""
    monkeypatch.setattr("dnnstack.datasets.image_folder._CHUNK", 2)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    _text(root / "flowers" / "aster" / "0.png")
    chunk = {"aster/0.png", "aster/1.JPG"}
    seen: set[str] = set()
    too_far = threading.Event()
    from dnnstack.datasets.image_folder import open_picture

    def watched(path: Path, steps: list[str]) -> Image.Image:
        name = f"{path.parent.name}/{path.name}"
        seen.add(name)
        if name not in chunk:
            too_far.set()
        elif name == "aster/0.png":
            # Time for the other threads to go where they should not.
            too_far.wait(0.3)
        return open_picture(path, steps)

    monkeypatch.setattr("dnnstack.datasets.image_folder.open_picture", watched)
    with pytest.raises(DatasetError, match=r"aster/0\.png"):
        load("image_folder", "train", root=root, options=OPTIONS)
    assert "aster/0.png" in seen
    assert seen <= chunk


def test_it_has_no_known_files(root: Path) -> None:
    assert files("image_folder", root, OPTIONS) == ()
