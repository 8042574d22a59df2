"""What is found in a folder of pictures, of either layout, and what cannot be trained on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets.survey import Survey, _discriminant, colours_tell, survey
from PIL import Image

from ..support.picture_folders import paint


def look(folder: Path, most: int = 1000) -> Survey:
    return survey(folder, 0.2, most)


@pytest.fixture
def flowers(tmp_path):
    folder = tmp_path / "flowers"
    for name, count in (("aster", 4), ("rose", 6)):
        for number in range(count):
            paint(folder / name / f"{number}.png", number, (20 + number, 30))
    return folder


def test_a_folder_for_each_class(flowers):
    paint(flowers / "rose" / "red" / "deep.jpg", 3)
    paint(flowers / "rose" / ".hidden.png", 4)
    paint(flowers / ".cache" / "x.png", 4)
    (flowers / "aster" / "notes.txt").write_text("not a picture")
    found = look(flowers)
    assert found.classes == ("aster", "rose")
    assert (found.counts, found.folders) == ({"train": (4, 7)}, {"train": flowers})
    assert (found.count, found.examined, found.broken) == (11, 11, {})
    assert {(each.height, each.width) for each in found.looks} >= {(20, 30), (25, 30)}


@pytest.mark.parametrize(
    "names",
    [
        ("train", None, "test"),
        ("Train", "Val", None),
        ("training", "validation", "testing"),
        ("train", "valid", "Test"),
    ],
)
def test_parts_with_a_folder_for_each_class(flowers, names):
    whole = flowers.with_name("whole")
    for name in filter(None, names):
        shutil.copytree(flowers, whole / name)
    (whole / "readme").mkdir()
    # One of two names is used, and it has pictures.
    (whole / ("validation" if names[1] == "Val" else "tests")).mkdir()
    paint(whole / names[0] / "rose" / "more.png", 1)
    found = look(whole)
    parts = zip(("train", "validation", "test"), names, strict=True)
    assert found.folders == {part: whole / name for part, name in parts if name}
    counts = {"train": (4, 7), "validation": (4, 6), "test": (4, 6)}
    assert found.counts == {part: counts[part] for part in found.folders}
    assert found.count == found.examined == 1 + 10 * len(found.folders)
    # Without test pictures, a fifth of train, at least one of each class, is held out.
    assert found.training == ((4, 7) if names[2] else (3, 6))
    assert found.unused[0] == "readme"
    assert len(found.unused) == 2
    # Of the other parts fewer are looked at, but one of each class.
    assert look(whole, most=4).examined == 5 + 2 * len(found.folders) - 2
    # The longest name is that of the part.
    shutil.copytree(flowers, whole / "val" if names[1] == "valid" else whole / "x")
    assert look(whole).folders == found.folders


def test_pictures_to_train_on_may_have_others_beside_them(flowers):
    flowers.rename(flowers.with_name("train"))
    paint(flowers.with_name("cover.png"), 1)
    assert look(flowers.parent).folders == {"train": flowers.with_name("train")}


def test_a_class_may_be_called_train(flowers):
    (flowers / "aster").rename(flowers / "train")
    (flowers / "rose").rename(flowers / "test")
    assert look(flowers).classes == ("test", "train")


def test_a_folder_around_the_folder(flowers, tmp_path):
    outer = tmp_path / "unpacked" / "v1"
    outer.mkdir(parents=True)
    flowers.rename(outer / "flowers")
    (tmp_path / "unpacked" / ".DS_Store").write_text("")
    assert look(tmp_path / "unpacked").folders["train"] == outer / "flowers"


def test_pictures_that_cannot_be_read_are_named(flowers):
    (flowers / "rose" / "0.png").write_bytes(b"\x89PNG, but not really")
    (flowers / "aster" / "empty.jpg").write_bytes(b"")
    found = look(flowers)
    assert sorted(found.broken) == ["aster/empty.jpg", "rose/0.png"]
    assert "is empty, 0 bytes" in found.broken["aster/empty.jpg"]
    assert len(found.looks) == found.examined - 2 == 9


def test_of_many_pictures_a_sample_is_looked_at(flowers):
    found = look(flowers, most=3)
    assert 3 <= found.examined <= 4
    assert set(found.labels) == {0, 1}
    assert found.count == 10


def test_grey_pictures_are_found(flowers):
    paint(flowers / "rose" / "grey.png", 1, mode="L")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 1), np.uint8).repeat(3, 2)
    Image.fromarray(pixels).save(flowers / "rose" / "alike.png")
    assert sum(each.grey for each in look(flowers).looks) == 2


def coloured(folder: Path, hues: dict[str, tuple[int, int, int]], of_class: bool) -> Survey:
    draw = np.random.default_rng(1)
    drawn = list(hues.values())
    for name, hue in hues.items():
        for number in range(20):
            base = np.array(hue if of_class else drawn[draw.integers(len(drawn))])
            pixels = np.clip(base + draw.normal(0, 40, (8, 8, 3)), 0, 255).astype(np.uint8)
            (folder / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return look(folder)


def test_whether_colours_tell_the_classes_apart(tmp_path):
    hues = {"blue": (30, 60, 220), "green": (40, 200, 50), "red": (210, 40, 30)}
    share, needed = colours_tell(coloured(tmp_path / "a", hues, of_class=True))
    assert share > 0.9
    # Three standard errors more than chance, or a fifth of what is wrong by chance.
    assert needed == pytest.approx(1 / 3 + 3 * (2 / 9 / 60) ** 0.5)
    share, needed = colours_tell(coloured(tmp_path / "b", hues, of_class=False))
    assert share < needed


@pytest.mark.parametrize(("across", "label"), [(0.099, 1), (0.101, 0)])
def test_what_hardly_varies_counts_as_a_hundredth(across, label):
    """One colour tells the classes and never varies, the other has a variance of 0.09."""
    x = np.array([[0.0, -0.3], [0.0, 0.3], [1.0, 0.7], [1.0, 1.3]])
    asked = np.array([[0.51, 0.5 - across]])
    assert _discriminant(x, np.array([0, 0, 1, 1]), asked, 2) == [label]


def wrong(folder: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        look(folder)
    return str(caught.value)


def test_what_cannot_be_trained_on(flowers, tmp_path):
    assert "no such folder" in wrong(tmp_path / "nowhere")
    assert "is not a folder" in wrong(flowers / "rose" / "0.png")
    (tmp_path / "empty").mkdir()
    assert "contains no folders" in wrong(tmp_path / "empty")
    assert "make a folder for each class" in wrong(flowers / "rose")
    (flowers / "later").mkdir()
    assert look(flowers).others == {"folder later without pictures": 1}
    shutil.rmtree(flowers / "aster")
    assert "contains only the folder 'rose'" in wrong(flowers)
    paint(flowers / "single" / "one.png", 1)
    assert "single/one.png is the only picture of its class" in wrong(flowers)
    assert f"or divide {flowers} into a folder 'train' and a folder 'test'" in wrong(flowers)
    (tmp_path / "whole").mkdir()
    shutil.copytree(flowers, tmp_path / "whole" / "train")
    whole = tmp_path / "whole"
    assert f"or put test pictures into {whole / 'test'}, with the same folders as" in wrong(whole)
    assert f"and name {whole}" in wrong(whole / "train")
    shutil.copytree(flowers, whole / "test")
    assert look(whole).folders["test"] == whole / "test"
    (flowers / "single" / "one.png").write_text("broken")
    (flowers / "single" / "two.png").write_text("broken")
    assert "single: none of its pictures can be read" in wrong(flowers)


def test_test_classes_must_be_those_of_training(flowers):
    whole = flowers.with_name("whole")
    shutil.copytree(flowers, whole / "train")
    shutil.copytree(flowers, whole / "test")
    (whole / "test" / "rose").rename(whole / "test" / "tulip")
    assert "its folders are not those of the 2 classes" in wrong(whole)
    shutil.rmtree(whole / "test" / "aster")
    assert "test: contains only the folder 'tulip'" in wrong(whole)
