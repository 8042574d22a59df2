"""Folders with files that are no pictures, pictures of other names, and folders of systems."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import class_folders, describe, image_folder, load
from dnnstack.datasets.survey import survey
from PIL import Image

from ...support.picture_folders import OPTIONS, ORDER, paint

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0"


@pytest.fixture
def without_extra(monkeypatch):
    monkeypatch.setattr("dnnstack.datasets.picture_kinds.find_spec", lambda name: None)


def renamed(root: Path) -> list[str]:
    """The pictures to train on under names that say nothing, in their order."""
    names = []
    for number, name in enumerate(ORDER):
        path = root / "flowers" / name
        new = path.with_name(f"{path.name}{('', '.jfif', '.HEIC')[number % 3]}")
        path.rename(new.with_suffix(new.suffix if number % 3 else ""))
        names.append(new)
    return [str(name) for name in names]


def test_pictures_are_found_by_their_content(root, caplog):
    before = load("image_folder", "train", root=root, options=OPTIONS)
    renamed(root)
    after = load("image_folder", "train", root=root, options=OPTIONS)
    np.testing.assert_array_equal(after.labels, before.labels)
    np.testing.assert_array_equal(
        sorted(image.tobytes() for image in after.images),
        sorted(image.tobytes() for image in before.images),
    )
    assert caplog.messages == []
    assert survey(root / "flowers", 0.2).counts["train"] == (2, 3, 4)


def test_files_are_looked_into_once(root, monkeypatch):
    renamed(root)
    looked = []
    real = class_folders.kind_of

    def noted(path: Path) -> str:
        looked.append(path.name)
        return real(path)

    monkeypatch.setattr(class_folders, "kind_of", noted)
    names = ("aster", "rose", "tulip")
    options = {**OPTIONS, "classes": names}
    for _ in range(2):
        load("image_folder", "train", root=root, options=options)
        first, looked[:] = list(looked), []
    # A class folder is one at its first picture: three to train on, three to test on.
    assert len(first) == 6
    path = next(each for each in (root / "flowers" / "rose").iterdir() if each.suffix != ".JPG")
    path.write_bytes(b"something else")
    data = load("image_folder", "train", root=root, options=options)
    assert len(data) == len(ORDER) - 1


def test_what_is_passed_over_is_told(root, caplog, without_extra):
    clean = load("image_folder", "train", root=root, options=OPTIONS)
    folder = root / "flowers"
    for number in range(3):
        (folder / "rose" / f"IMG_{number}.HEIC").write_bytes(HEIC)
    (folder / "aster" / "notes.txt").write_text("no picture")
    paint(folder / "tulip" / "@eaDir" / "0.png" / "SYNOPHOTO_THUMB_XL.jpg", 5)
    paint(folder / "__MACOSX" / "rose" / "0.png", 6)
    paint(folder / ".hidden" / "0.png", 6)
    (folder / "later" / "still").mkdir(parents=True)
    (folder / "later" / "still" / "readme.txt").write_text("to come")
    wanted = (
        "passed over: HEIC pictures (python3 -m pip install 'dnnstack[heic]' reads them): 3, "
        "folder later without pictures: 1, folders @eaDir: 1, folders __MACOSX: 1, "
        "other files (.txt): 1"
    )
    for _ in range(2):
        caplog.clear()
        data = load("image_folder", "train", root=root, options=OPTIONS)
        np.testing.assert_array_equal(data.images, clean.images)
        assert data.classes == ("aster", "rose", "tulip")
        assert caplog.messages == [f"{folder}: {wanted}"]
    # What lies beside the pictures to test on is told where they are read.
    (root / "unseen" / "rose" / "x.csv").write_text("")
    caplog.clear()
    load("image_folder", "train", root=root, options=OPTIONS)
    assert caplog.messages == [f"{folder}: {wanted}"]
    caplog.clear()
    load("image_folder", "test", root=root, options=OPTIONS)
    assert caplog.messages == [f"{root / 'unseen'}: passed over: other files (.csv): 1"]
    info = describe("image_folder", options=OPTIONS, root=root)
    assert info.left_out == (str(folder / "later"),)


def test_a_class_of_pictures_that_are_not_read_is_an_error_with_the_remedy(root, without_extra):
    """It is no folder without pictures, which would be passed over."""
    (root / "flowers" / "weed").mkdir()
    (root / "flowers" / "weed" / "IMG_1.HEIC").write_bytes(HEIC)
    with pytest.raises(DatasetError, match=r"weed: no picture in this .*HEIC.*dnnstack\[heic\]"):
        load("image_folder", "train", root=root, options={"train": "flowers", "size": 8})
    (root / "flowers" / "weed" / "IMG_1.HEIC").unlink()
    (root / "unseen" / "rose" / "x.png").unlink()
    (root / "unseen" / "rose" / "IMG_1").write_bytes(HEIC)
    with pytest.raises(DatasetError, match=r"unseen/rose: no picture in this .*HEIC pictures"):
        load("image_folder", "test", root=root, options=OPTIONS)


def test_a_class_without_pictures_to_test_on(root, caplog):
    (root / "unseen" / "rose" / "x.png").unlink()
    test = load("image_folder", "test", root=root, options=OPTIONS)
    assert test.labels.tolist() == [0, 2]
    assert caplog.messages == [f"{root / 'unseen'}: passed over: folder rose without pictures: 1"]
    assert [*survey(root, 0.2).counts] == ["train"]
    for name in ("unseen", "flowers"):
        shutil.move(root / name, root / {"unseen": "test", "flowers": "train"}[name])
    found = survey(root, 0.2)
    assert found.counts["test"] == (1, 0, 1)
    assert found.others == {"folder rose without pictures": 1}


def test_a_class_that_the_config_names_needs_pictures_to_train_on(root):
    shutil.rmtree(root / "flowers" / "rose")
    (root / "flowers" / "rose").mkdir()
    options = {**OPTIONS, "classes": ("aster", "rose", "tulip")}
    with pytest.raises(DatasetError, match=r"flowers/rose: no picture in this folder.*Put pictu"):
        load("image_folder", "train", root=root, options=options)


def test_too_few_folders_with_pictures(root):
    for name in ("rose", "tulip"):
        shutil.rmtree(root / "flowers" / name)
        (root / "flowers" / name).mkdir()
    message = "only the folder 'aster' with pictures: there are none in rose, tulip; it should"
    with pytest.raises(DatasetError, match=message):
        describe("image_folder", options=OPTIONS, root=root)


def test_another_reader_of_heic_reads_the_pictures_anew(root, cache, monkeypatch):
    """As another Pillow does."""
    entries = cache / "decoded"
    for number, version in enumerate(("1.2.0", "1.2.0", "1.8.1"), 1):
        load("image_folder", "train", root=root, options=OPTIONS)
        monkeypatch.setattr(image_folder, "heic_version", lambda version=version: version)
        assert len(list(entries.glob("image_folder-train-*"))) == 1, number
    pytest.importorskip("pillow_heif").register_heif_opener()
    Image.new("RGB", (40, 30), (9, 90, 200)).save(root / "flowers" / "rose" / "a", "HEIF")
    for version, count in (("1.2.0", 2), ("1.2.0", 2), ("1.8.1", 3)):
        monkeypatch.setattr(image_folder, "heic_version", lambda version=version: version)
        data = load("image_folder", "train", root=root, options=OPTIONS)
        assert len(data) == len(ORDER) + 1
        assert len(list(entries.glob("image_folder-train-*"))) == count


def test_a_survey_counts_no_thumbnails(root, without_extra):
    folder = root / "flowers"
    for path in sorted(folder.rglob("*.*")):
        for size in "SMX":
            paint(path.parent / "@eaDir" / path.name / f"SYNOPHOTO_THUMB_{size}.jpg", 3)
    (folder / "rose" / "IMG_1.HEIC").write_bytes(HEIC)
    found = survey(folder, 0.2)
    assert (found.counts["train"], found.examined) == ((2, 3, 4), 9)
    assert found.others["folders @eaDir"] == 3
    # An archive that was unpacked on a Mac.
    outer = root / "outer"
    outer.mkdir()
    shutil.move(folder, outer / "flowers")
    paint(outer / "__MACOSX" / "flowers" / "._x.png", 1)
    assert survey(outer, 0.2).folders["train"] == outer / "flowers"
    (outer / "flowers" / "loose").write_bytes(b"")
    Image.new("RGB", (9, 9)).save(outer / "loose.jfif", "JPEG")
    with pytest.raises(DatasetError, match="has 1 pictures, but no folders"):
        survey(outer, 0.2)
