"""What an evaluation counts, and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import ImageSet
from dnnstack.reports import evaluate_plots
from dnnstack.reports.evaluate_plots import (
    CONFUSION,
    ERRORS,
    RELIABILITY,
    confusion_picture,
    draw_plots,
    errors_picture,
)
from dnnstack.reports.evaluate_text import as_text
from dnnstack.training.inference.evaluate import Evaluation, Part
from dnnstack.training.inference.parts import load_part
from dnnstack.training.inference.tally import Mistake, Tally
from dnnstack.training.inference.trained import Trained
from dnnstack.training.metrics import BINS
from numpy.typing import NDArray
from PIL import Image

CLASSES = ("cat", "dog", "cow")
CONFUSION_OF_THREE = np.array([[6, 2, 0], [1, 9, 0], [0, 2, 0]], np.int64)


def evaluation(confusion: NDArray[np.int64], classes: tuple[str, ...] = CLASSES) -> Evaluation:
    wrong = [
        Mistake(i, label, answer, 0.9 - i / 100, 0.05)
        for i, (label, answer) in enumerate(
            np.argwhere(confusion - np.diag(np.diag(confusion))).tolist()
        )
    ]
    right = int(np.trace(confusion))
    return Evaluation(
        checkpoint=Path("runs/x/checkpoints/step-1.safetensors"),
        dataset="animals",
        part="test",
        classes=classes,
        loss=0.5,
        confusion=confusion,
        top_k={1: right, 2: int(confusion.sum()) - 1},
        worst=tuple(wrong),
    )


@pytest.fixture
def images():
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 32, 32), np.uint8)
    return ImageSet("animals/test", pixels, np.zeros(40, np.int32), CLASSES)


def test_a_tally_counts_as_one_does_by_hand():
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 6, 50).astype(np.int32)
    # Coarse numbers bring ties, which the first class wins.
    scores = rng.integers(0, 4, (50, 6)).astype(np.float32)
    shares = scores / 20
    tally = Tally(6)
    for part in (slice(0, 30), slice(30, 50)):
        tally.add(np.arange(100, 150)[part], labels[part], scores[part], shares[part])
    confusion = np.zeros((6, 6), int)
    right = dict.fromkeys((1, 2, 3, 5), 0)
    wrong = []
    for i, (label, row) in enumerate(zip(labels.tolist(), scores.tolist(), strict=True)):
        order = sorted(range(6), key=lambda k: (-row[k], k))
        confusion[label, order[0]] += 1
        for k in right:
            right[k] += label in order[:k]
        if order[0] != label:
            wrong.append((row[label] / 20, -row[order[0]] / 20, 100 + i, label, order[0]))
    np.testing.assert_array_equal(tally.confusion, confusion)
    assert tally.top_k() == right
    assert tally.fields()["measured"].overall["accuracy"] == right[1] / 50
    assert right[1] == np.trace(confusion) < right[2] < right[3]
    found = [(m.index, m.label, m.answer) for m in tally.worst()]
    assert found == [case[2:] for case in sorted(wrong)][:40]
    assert tally.worst()[0].true_probability == pytest.approx(sorted(wrong)[0][0])
    assert tally.worst()[0].probability == pytest.approx(-sorted(wrong)[0][1])


def test_the_worst_are_no_more_than_a_sheet_holds():
    tally = Tally(2)
    scores = np.tile(np.array([[0.9, 0.1]], np.float32), (60, 1))
    tally.add(np.arange(60), np.ones(60, np.int32), scores, scores)
    assert [mistake.index for mistake in tally.worst()] == list(range(40))
    assert tally.top_k() == {1: 0}


def test_plots_are_written_and_stale_ones_go(images, tmp_path):
    folder = tmp_path / "new" / "eval"
    assert draw_plots(evaluation(CONFUSION_OF_THREE), images, folder) == [
        folder / CONFUSION,
        folder / ERRORS,
    ]
    counted = replace(evaluation(CONFUSION_OF_THREE), bins=np.ones((3, BINS)))
    assert draw_plots(counted, images, folder)[1:] == [folder / RELIABILITY, folder / ERRORS]
    for name in (CONFUSION, RELIABILITY, ERRORS):
        with Image.open(folder / name) as picture:
            assert picture.format == "PNG"
    flawless = replace(evaluation(np.diag([3, 4, 5])), worst=())
    assert draw_plots(flawless, images, folder) == [folder / CONFUSION]
    assert [path.name for path in folder.iterdir()] == [CONFUSION]


def test_counterexamples_are_counted_apart():
    labels = np.array([0, 0, 1, 2, 2, 2])
    scores = np.array([[3, 0, 0], [0, 0, 1], [0, 2, 1], [0, 1, 3], [2, 0, 1], [0, 0, 4]], float)
    tally = Tally(3, reject=2)
    for part in (slice(0, 2), slice(2, 6)):
        tally.add(np.arange(6)[part], labels[part], scores[part], scores[part] / 4)
    # Of pairs of a counterexample and another, 7 in the right order, and 2 alike.
    wanted = {"index": 2, "count": 3, "false_alarms": 1, "known": 3, "misses": 1}
    found = tally.fields()["rejects"]
    assert found == {**wanted, "accuracy": 2 / 3, "roc_auc": 8 / 9}
    alone = Tally(3, reject=2)
    alone.add(np.arange(3), labels[3:], scores[3:], scores[3:])
    assert alone.fields()["rejects"]["accuracy"] is alone.fields()["rejects"]["roc_auc"] is None
    tally._reject = None
    assert "rejects" not in tally.fields()
    result = replace(evaluation(CONFUSION_OF_THREE), rejects=found, kept=0.875, temperature=1.25)
    said = as_text(result)
    assert "T         1.250  (temperature" in said
    assert "familiar  87.50%  (the others are none" in said
    assert "rejects   of 3 'cow', 1 false alarms: taken for another class; AUROC 0.8889\n" in said
    assert "          of 3 others, 1 misses: taken for none; accuracy 66.67%\n" in said
    assert result.to_json()["rejects"] == found


@pytest.mark.parametrize("count", [2, 10, 26, 120])
@pytest.mark.parametrize("name", ["{}", "a name that is longer than most, {}"])
def test_a_matrix_of_any_size_is_drawn_within_bounds(count, name):
    names = tuple(name.format(k) for k in range(count))
    picture = confusion_picture(evaluation(np.eye(count, dtype=np.int64) * 12345, names))
    assert 500 <= picture.width <= 1000
    assert picture.height <= 1000
    # Nothing is cut off: the margin is white on all sides.
    pixels = np.asarray(picture.convert("L"))
    for edge in (pixels[:6], pixels[-6:], pixels[:, :6], pixels[:, -6:]):
        assert edge.min() == 255


def test_files_of_one_name_are_told_apart(images):
    paths = ("/a/cat/mon/1.png", "/a/dog/mon/1.png", "/b/dog/mon/1.png", "/a/cat/2.png", "row 3")
    said = [evaluate_plots._folder(path, paths, 1000) for path in paths]
    assert said == ["in cat/mon", "in a/dog/mon", "in b/dog/mon", "", ""]
    assert evaluate_plots._folder(paths[1], paths, 40) == "…mon"
    # What the font lacks is escaped, and no escape is cut in two.
    strange = ("/a/Aster \u7d2b/\uff54.png", "/a/\uff54\uff55/\uff54.png")
    assert evaluate_plots._source(strange[0], 1000) == "\\uff54.png"
    said = [evaluate_plots._folder(path, strange, 1000) for path in strange]
    assert said == ["in Aster \\u7d2b", "in \\uff54\\uff55"]
    assert evaluate_plots._folder(strange[1], strange, 70) == "…\\uff55"
    assert evaluate_plots._source("\uff54\uff55", 70) == "\\uff54…"
    plain = evaluation(CONFUSION_OF_THREE)
    heights = []
    for first in ("/a/cat/2.png", "/a/cat/1.png"):
        named = (first, "/a/dog/1.png")
        worst = tuple(replace(each, source=s) for each, s in zip(plain.worst, named, strict=False))
        heights.append(errors_picture(replace(plain, worst=worst), images).height)
    # The folder has a line of its own, where it is needed.
    assert heights[0] < heights[1]


def test_a_tally_names_the_sources_of_its_mistakes():
    tally = Tally(2)
    scores = np.array([[0.9, 0.1], [0.2, 0.8]])
    tally.add(np.array([3, 1]), np.array([1, 1]), scores, scores)
    assert [mistake.source for mistake in tally.worst(("a", "b", "c", "d"))] == ["d"]
    assert tally.worst()[0].source == ""


def test_pictures_larger_than_their_place_are_scaled_down(tmp_path):
    large = ImageSet("x/test", np.zeros((3, 1, 500, 300), np.uint8), np.zeros(3, np.int32), CLASSES)
    picture = errors_picture(evaluation(CONFUSION_OF_THREE), large)
    assert picture.height < 350


def test_a_split_that_there_is_not_is_refused(tmp_path):
    said = r"^split: expected train, validation or test \(got 'tst'; did you mean 'test'\?\)$"
    with pytest.raises(DatasetError, match=said):
        load_part(cast(Trained, None), cast(Part, "tst"), tmp_path)
