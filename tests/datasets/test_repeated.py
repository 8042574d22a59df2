"""Pictures that are in a set twice are told, and few files are read to find them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from dnnstack.common.files import sha256_file
from dnnstack.datasets import ImageSet, load, repeated
from dnnstack.datasets.class_folders import PictureFile
from dnnstack.datasets.repeated import Sample, doubts
from dnnstack.datasets.survey import survey

from ..support.picture_folders import OPTIONS, paint, root

__all__ = ["root"]
TWO = "identical pictures under several classes (1): "
KEEP = "; keep each in the class to which it belongs"
BOTH = "identical pictures in test and in training "
REMOVE = (
    "; remove them from one of the two, because a test on what was trained on says nothing of new "
    "ones"
)


def told(*parts: list[Sample]) -> tuple[str, ...]:
    """What is told of samples to train on, to test on, and to validate on."""
    return repeated.repeated(dict(zip(("train", "test", "validation"), parts, strict=False)))


def test_what_is_told():
    train = [("t/a/1", 0, "x"), ("t/a/2", 0, "y"), ("t/b/1", 1, "z")]
    assert told(train, [("s/a/1", 0, "w")], [("v/a/1", 0, "v")]) == ()
    # A copy in its own class misleads nobody.
    assert told([*train, ("t/a/9", 0, "x")], []) == ()
    assert told([*train, ("t/b/9", 1, "x")], []) == (f"{TWO}t/a/1 = t/b/9{KEEP}",)
    copies = [*train, ("t/a/9", 0, "x"), ("t/b/9", 1, "x"), ("t/b/10", 1, "x")]
    assert told(copies, []) == (f"{TWO}t/a/1 = t/b/9{KEEP}",)
    assert told(train, [("s/a/1", 0, "z2"), ("s/b/1", 1, "z2")]) == (f"{TWO}s/a/1 = s/b/1{KEEP}",)
    assert told(train, [("s/a/7", 0, "y")]) == (f"{BOTH}(1): s/a/7 = t/a/2{REMOVE}",)
    assert told(train, [("s/b/7", 1, "y")]) == (
        f"{TWO}t/a/2 = s/b/7{KEEP}",
        f"{BOTH}(1): s/b/7 = t/a/2{REMOVE}",
    )
    many = [(f"t/a/{number}", 0, str(number)) for number in range(7)]
    (text,) = told(many, many)
    assert text.startswith(f"{BOTH}(7): t/a/0 = t/a/0, ")
    assert text.endswith(f", t/a/4 = t/a/4 and 2 more{REMOVE}")


def test_each_two_of_three_parts_are_compared():
    train, held = [("t/a/1", 0, "x")], [("v/a/1", 0, "x"), ("v/a/2", 0, "y"), ("v/b/3", 1, "y")]
    several, trained, tested = told(train, [("s/a/1", 0, "y")], held)
    assert several == f"{TWO}s/a/1 = v/b/3{KEEP}"
    begin = "identical pictures in validation and in training (1): v/a/1 = t/a/1; "
    assert trained == begin + REMOVE[2:].replace("a test", "validation")
    begin = "identical pictures in test and in validation (1): s/a/1 = v/a/2; remove them from one "
    assert tested.startswith(f"{begin}of the two, because the best checkpoint is chosen by what")


def read(root: Path, split: str = "train", **options: object) -> ImageSet:
    return load("image_folder", split, root=root, options={**OPTIONS, **options})


def test_a_training_is_told(root):
    assert read(root).doubts == ()
    shutil.copy(root / "flowers" / "rose" / "0.png", root / "flowers" / "tulip" / "copy.png")
    shutil.copy(root / "flowers" / "tulip" / "3.png", root / "unseen" / "tulip" / "y.png")
    two = f"{TWO}flowers/rose/0.png = flowers/tulip/copy.png{KEEP}"
    both = f"{BOTH}(1): unseen/tulip/y.png = flowers/tulip/3.png{REMOVE}"
    for _ in range(2):
        assert read(root).doubts == (two, both)
    assert read(root, "test").doubts == ()
    (root / "unseen" / "tulip" / "y.png").unlink()
    assert read(root).doubts == (two,)
    os.rename(root / "flowers", root / "train")
    os.rename(root / "unseen", root / "test")
    assert survey(root, 0.2).doubts == (two.replace("flowers", "train"),)
    shutil.copytree(root / "train", root / "val")
    named = read(root, train="train", validation="val", test="test")
    for found in (survey(root, 0.2).doubts, named.doubts):
        assert "identical pictures in validation and in training (10): val/aster/0.png" in found[1]


def test_classes_that_are_not_tested(tmp_path):
    pictures = [PictureFile(f"{label}/1", label, (number,)) for number, label in enumerate((0, 1))]
    names, contents = ("a", "\x1bb", "c"), ("x", "y")
    train, one = (tmp_path, pictures), (tmp_path, pictures[:1])
    found = doubts(names, {"train": train, "test": one}, contents)
    assert found == (r"classes without pictures in test (2): \x1bb, c",)
    assert doubts(names[:2], {"train": train, "test": train}, contents) == ()
    found = doubts(names, {"train": train, "test": train, "validation": one}, contents)
    lacking = "classes without pictures in"
    assert found == (rf"{lacking} validation (2): \x1bb, c", f"{lacking} test (1): c")


def test_those_held_out_are_compared_too(root):
    for number in range(8):
        shutil.copy(
            root / "flowers" / "rose" / "0.png", root / "flowers" / "rose" / f"c{number}.png"
        )
    (text,) = read(root, test=None, test_fraction=0.5).doubts
    assert text.startswith(f"{BOTH}(4): flowers/rose/")
    (text,) = survey(root / "flowers", 0.5).doubts
    assert text.startswith(f"{BOTH}(4): flowers/rose/")


def test_only_files_of_the_same_size_are_read_and_once(root, monkeypatch):
    seen: list[str] = []

    def noted(path: Path) -> str:
        seen.append(f"{path.parent.parent.name}/{path.parent.name}/{path.name}")
        return sha256_file(path)

    monkeypatch.setattr(repeated, "sha256_file", noted)
    size = (root / "flowers" / "rose" / "0.png").stat().st_size
    (root / "unseen" / "rose" / "x.png").write_bytes(
        (root / "unseen" / "rose" / "x.png").read_bytes().ljust(size + 1, b"\0")[: size + 1]
    )
    read(root)
    assert seen == []
    with open(root / "unseen" / "rose" / "x.png", "r+b") as file:
        file.truncate(size)
    for _ in range(2):
        assert read(root).doubts == ()
        assert seen == ["unseen/rose/x.png"]


def test_what_cannot_be_read_is_left_to_others(root, monkeypatch):
    def refused(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    shutil.copy(root / "flowers" / "rose" / "0.png", root / "unseen" / "rose" / "y.png")
    shutil.copy(root / "flowers" / "rose" / "0.png", root / "unseen" / "tulip" / "y.png")
    monkeypatch.setattr(repeated, "sha256_file", refused)
    assert read(root).doubts == ()


def test_the_name_of_a_folder_is_no_order_to_a_terminal(root):
    shutil.copy(root / "flowers" / "rose" / "0.png", root / "unseen" / "rose" / "\x1b[2J.png")
    (text,) = read(root).doubts
    assert r"unseen/rose/\x1b[2J.png = flowers/rose/0.png" in text
    paint(root / "unseen" / "rose" / "z.png", 3)
