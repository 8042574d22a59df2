"""Which samples are suspected, in which order, and the files of them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet
from dnnstack.reports import suspects
from dnnstack.reports.suspects import draw_suspects, find_suspects, write_labels, write_list
from dnnstack.training.inference.evaluate import Evaluation
from PIL import Image

RANDOM = np.random.default_rng(2)
CLASSES = ("=cat", "<dog>", "cow")


def pictures(count: int) -> np.ndarray:
    cells = RANDOM.integers(20, 220, (count, 1, 8, 9), np.uint8)
    return cells.repeat(2, 2).repeat(2, 3)


def network(fold: object = None) -> SimpleNamespace:
    return SimpleNamespace(
        path=Path("net"), config=SimpleNamespace(data=SimpleNamespace(fold=fold))
    )


@pytest.fixture
def find(monkeypatch):
    """What is found by these answers (M, K); far: (M,)."""

    def found(images, said, far=None, index=None, limit=100, split="test", members=None):
        index = np.arange(len(images), dtype=np.int32) if index is None else index
        none = np.zeros((len(images.classes),) * 2, np.int64)
        result = Evaluation(
            Path("net"), "own", "test", images.classes, 0.0, none, {}, (), kind=images.kind
        )
        far = np.zeros(len(images)) if far is None else far

        def judged(few, samples, backend, split):
            return said[samples[1]], result, far[samples[1]]

        def read(member, part):
            if member.config.data.fold is None:
                return images, index
            assert part == "validation"
            return images, index[member.config.data.fold :: 2]

        monkeypatch.setattr(suspects, "_judged", judged)
        return find_suspects(members or [network()], None, read, split, limit)

    return found


def test_the_order_of_the_reasons_and_of_their_scores(find):
    images = pictures(10)
    # 1 and 8 are the same picture of two classes, 5 and 9 of one.
    images[8], images[9] = images[1], images[5]
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2, 2], np.int32)
    said = np.eye(3)[labels] * 0.98 + 0.01
    said[3] = 0.2, 0.5, 0.3
    said[4] = 0.6, 0.1, 0.3
    said[7] = 0.07, 0.93, 0.0
    said[2] = 0.03, 0.03, 0.94
    far = np.array([4.0, 0, 4.1, 0, 9.0, 0, 6.0, 0, 0, 0])
    data = ImageSet("own/test", images, labels, CLASSES, tuple(f"/d/{n}.png" for n in range(10)))
    found = find(data, said, far)
    rows = [(row[0], *row[2:4], round(row[4], 3), *row[5:]) for row in found.found]
    assert rows == [
        (1, "<dog>", "<dog>", 1.0, "duplicate of 8, cow", "test"),
        (8, "cow", "cow", 1.0, "duplicate of 1, <dog>", "test"),
        (4, "<dog>", "=cat", 0.5, "label", "test"),
        (3, "=cat", "<dog>", 0.3, "label", "test"),
        (7, "<dog>", "<dog>", -0.86, "label", "test"),
        (6, "=cat", "=cat", 6.0, "far from all others", "test"),
        (2, "cow", "cow", 4.1, "far from all others", "test"),
        (9, "cow", "cow", 1.0, "duplicate of 5", "test"),
    ]
    assert [row[1] for row in found.found] == [f"/d/{row[0]}.png" for row in rows]
    few = find(data, said, far, limit=1)
    assert [row[0] for row in few.found] == [1, 4, 6, 9]
    assert [each.source for each in few.result.worst][1] == "4: label"
    third = found.result.worst[2]
    assert (third.label, third.answer, third.probability, third.true_probability) == (
        1,
        0,
        0.6,
        0.1,
    )
    assert found.as_text(None).splitlines()[0] == "suspects of own/test: 8"
    assert json.loads(json.dumps(found.to_json()))["suspects"][3]["answer"] == "<dog>"


def test_shares_count_by_the_largest_and_places_are_of_the_set(find):
    labels = np.array([[0.9, 0.1, 0], [0, 0.2, 0.8], [0.1, 0.9, 0]], np.float32)
    said = np.array([[0.98, 0.02, 0], [0.5, 0.5, 0], [0.9, 0.1, 0]])
    images = ImageSet("own/test", pictures(3), labels, CLASSES, kind="distribution")
    found = find(images, said, index=np.array([2, 0], np.int32))
    assert [row[:1] + row[2:4] for row in found.found] == [(2, "<dog>", "=cat")]


def test_of_numbers_the_largest_residuals_in_deviations(find):
    targets = np.zeros((6, 2), np.float32)
    said = np.array([[1, 10], [1, 10], [3, 10], [1, 10], [-5, 10], [1, 50]], float)
    rows = ImageSet(
        "own/test", np.zeros((6, 1, 1, 1), np.float32), targets, ("a", "b"), kind="numbers"
    )
    found = find(rows, said, limit=3)
    shown = [(row[0], *row[2:4], row[5]) for row in found.found]
    assert shown == [
        (5, "0", "50", "residual of b"),
        (4, "0", "-5", "residual of a"),
        (2, "0", "3", "residual of a"),
    ]
    off = said[:, 0] - said[:, 0].mean()
    assert found.found[1][4] == pytest.approx(-off[4] / said[:, 0].std())
    assert found.result.worst == ()


def test_samples_to_train_on_need_folds(find):
    labels = np.array([0, 1, 2, 0], np.int32)
    said = np.roll(np.eye(3), 1, 0)[labels]
    images = ImageSet("own/train", pictures(4), labels, CLASSES)
    found = find(images, said, split=None, members=[network(0), network(1)])
    assert (found.result.part, {row[0] for row in found.found}) == ("train", {0, 1, 2, 3})
    assert find(images, said, split=None).result.part == "test"
    for members in ([network()], [network(1)], [network(1), network(1)], [network(1), network()]):
        with pytest.raises(
            DatasetError, match="were trained on; train with --folds 5, then dnnstack"
        ):
            find(images, said, split="train", members=members)


def read(path: Path) -> list[list[str]]:
    return list(csv.reader(path.read_text("utf-8").splitlines()))


def test_files_are_whole_and_no_name_is_a_formula(find, tmp_path):
    labels = np.array([1, 0, 2], np.int32)
    said = np.array([[0.9, 0.1, 0], [0.6, 0.4, 0], [0, 0, 1.0]])
    images = ImageSet("own/test", pictures(3), labels, CLASSES)
    found = find(images, said)
    assert write_labels(tmp_path / "labels.csv", found) == 1
    assert read(tmp_path / "labels.csv") == [
        ["split", "index", "path", "label"],
        ["test", "0", "", "'=cat"],
    ]
    drawn = draw_suspects(found, tmp_path / "new" / "folder")
    assert [path.name for path in drawn] == ["suspects.csv", "suspects.png"]
    assert read(drawn[0])[1:] == [
        ["0", "", "<dog>", "'=cat", "0.8", "label", "test"],
        ["1", "", "'=cat", "'=cat", "-0.2", "label", "test"],
    ]
    with Image.open(drawn[1]) as sheet:
        assert sheet.width > 200
    # Without suspects there is no sheet, also not one of before.
    none = find(images, np.eye(3)[labels])
    assert draw_suspects(none, drawn[0].parent) == drawn[:1]
    assert not drawn[1].exists()
    assert none.as_text(80).startswith("suspects of own/test: 0")
    with pytest.raises(DatasetError, match=r"cannot be written: .*; choose another file"):
        write_list(tmp_path / "none" / "list.csv", [])
