"""Names and contents of pictures in folders; a cache that serves only what is there."""

from __future__ import annotations

import hashlib
import os
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet, image_folder, load
from PIL import Image

from ...support.picture_folders import OPTIONS, ORDER, expected, paint

COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "bébé") for form in ("NFC", "NFD"))


def read(root: Path, **options: object) -> ImageSet:
    return load("image_folder", "train", root=root, options={**OPTIONS, **options})


def twins(root: Path, name: str = "pics") -> Path:
    """Two classes whose files have the same names, sizes and times, and other pixels."""
    for label, colour in (("cat", 200), ("dog", 40)):
        for number in range(3):
            path = root / name / label / f"{number}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), colour).save(path)
            os.utime(path, ns=(10**18, 10**18))
    return root / name


def exchanged_folders(pics: Path) -> None:
    os.rename(pics / "cat", pics / "away")
    os.rename(pics / "dog", pics / "cat")
    os.rename(pics / "away", pics / "dog")


def _each(pics: Path, put: Callable[[Path, Path], object]) -> None:
    other = twins(pics.parent, "other")
    exchanged_folders(other)
    for path in sorted(other.glob("*/*")):
        put(path, pics / path.relative_to(other))


def copied(pics: Path) -> None:
    """As by ``cp -p``: into the files that are there, with the times of the others."""
    _each(pics, shutil.copy2)


def renamed_over(pics: Path) -> None:
    """As by ``rsync -t``: other files get the names."""
    _each(pics, os.replace)


@pytest.mark.parametrize("change", [exchanged_folders, copied, renamed_over])
def test_other_pictures_of_the_same_sizes_and_times_are_noticed(tmp_path, change):
    pics = twins(tmp_path)
    options = {"test": None, "test_fraction": 0.01, "size": 8, "mode": "grey", "train": "pics"}
    before = read(tmp_path, **options)
    change(pics)
    after = read(tmp_path, **options)
    assert before.images[:, 0, 0, 0].tolist() == [200, 200, 40, 40]
    assert after.images[:, 0, 0, 0].tolist() == [40, 40, 200, 200]
    assert after.identity.contents == before.identity.contents[2:] + before.identity.contents[:2]


def test_names_and_contents(root):
    found = read(root).identity
    assert found.classes == ("aster", "rose", "tulip")
    assert found.names == tuple(ORDER)
    wanted = [hashlib.sha256((root / "flowers" / name).read_bytes()).hexdigest() for name in ORDER]
    assert found.contents == tuple(digest[:32] for digest in wanted)
    assert found.labels.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]


def test_the_identity_does_not_depend_on_the_place_but_on_the_classes(root):
    before = read(root).identity
    assert read(root, size=9).identity.digest == before.digest
    os.rename(root / "flowers", root / "elsewhere")
    assert read(root, train="elsewhere").identity.digest == before.digest
    for part in ("elsewhere", "unseen"):
        os.rename(root / part / "rose", root / part / "rosa")
    after = read(root, train="elsewhere").identity
    assert after.digest != before.digest
    assert after.contents == before.contents
    assert after.names == tuple(name.replace("rose", "rosa") for name in before.names)


def test_labels_are_those_of_now(root, monkeypatch):
    """What is remembered of files is not by whose label they were read."""
    before = read(root)
    real, asked = image_folder.read_once, []

    def noted(stamps: list[Any], *given: Any) -> Any:
        asked.append(stamps)
        return real(stamps, *given)

    monkeypatch.setattr(image_folder, "read_once", noted)
    after = read(root, classes=("tulip", "rose", "aster"))
    assert after.labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2]
    read(root)
    assert sorted(map(str, asked[0])) == sorted(map(str, asked[1]))
    assert after.identity.digest != before.identity.digest
    assert sorted(after.identity.contents) == sorted(before.identity.contents)


def test_what_is_left_out_has_no_identity(root):
    (root / "flowers" / "rose" / "1.JPG").write_bytes(b"no picture")
    for _ in range(2):
        found = read(root, on_error="skip").identity
        assert found.names == tuple(name for name in ORDER if name != "rose/1.JPG")
        assert len(found.contents) == len(found.labels) == len(ORDER) - 1


def test_bit_rot_in_what_is_remembered_is_noticed(root, cache):
    before = read(root).identity
    for path in (cache / "decoded" / "index").iterdir():
        content = path.read_bytes()
        at = content.find(before.contents[0].encode())
        digit = b"0" if content[at : at + 1] != b"0" else b"1"
        path.write_bytes(content[:at] + digit + content[at + 1 :] if at >= 0 else content[:-9])
    assert read(root).identity.digest == before.digest


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_file_that_changes_while_it_is_read_is_not_taken(root, monkeypatch, caplog, on_error):
    real = image_folder.open_picture
    target = root / "flowers" / "rose" / "2.gif"

    def meanwhile(path: Path, *given: Any) -> Any:
        image = real(path, *given)
        if path == target:
            paint(root / "new" / "2.gif", 5)
            os.replace(root / "new" / "2.gif", target)
        return image

    monkeypatch.setattr(image_folder, "open_picture", meanwhile)
    if on_error == "stop":
        with pytest.raises(DatasetError, match=r"2\.gif: was changed while it was read; start"):
            read(root)
    else:
        assert "rose/2.gif" not in read(root, on_error="skip").identity.names
        assert "was changed while it was read" in caplog.text
    monkeypatch.undo()
    after = read(root, on_error=on_error)
    np.testing.assert_array_equal(
        after.images, expected(root / "flowers", ORDER, (3, 8, 12), False)
    )


def test_two_folders_of_one_name_in_two_forms_are_told(root):
    for form in (DECOMPOSED, COMPOSED):
        paint(root / "flowers" / form / "0.png", 3)
    message = r"folders 'be\\u0301be\\u0301' and 'b\\xe9b\\xe9' have one name in two forms"
    with pytest.raises(DatasetError, match=message):
        read(root)


def test_classes_are_found_by_their_names_in_whatever_form(root):
    paint(root / "flowers" / COMPOSED / "0.png", 3)
    paint(root / "unseen" / DECOMPOSED / "1.png", 4)
    found = read(root)
    assert found.classes == ("aster", COMPOSED, "rose", "tulip")
    test = load("image_folder", "test", root=root, options=OPTIONS)
    assert test.classes == found.classes
    assert test.names[1] == f"{DECOMPOSED}/1.png"
    assert test.identity.names[1] == f"{COMPOSED}/1.png"
    wanted = expected(root / "unseen", [f"{DECOMPOSED}/1.png"], (3, 8, 12), False)
    np.testing.assert_array_equal(test.images[1:2], wanted)
    given = ("tulip", DECOMPOSED, "rose", "aster")
    assert np.bincount(read(root, classes=given).labels).tolist() == [4, 1, 3, 2]
