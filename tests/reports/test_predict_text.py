from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Picture
from dnnstack.reports.predict_text import (
    as_colours,
    as_text,
    blocks,
    colour_blocks,
    csv_row,
    wanted,
)
from dnnstack.training.inference.predict import COLUMNS, Answer, InputFolder, Prediction, columns
from numpy.typing import NDArray
from PIL import Image


def prediction(
    shares: dict[str, float], image: NDArray[np.uint8] | None = None, path: str = "a/5.png"
) -> Prediction:
    answers = [Answer(label, i, share) for i, (label, share) in enumerate(shares.items())]
    answers.sort(key=lambda answer: -answer.probability)
    pixels = np.zeros((1, 28, 28), np.uint8) if image is None else image
    return Prediction(Path(path), tuple(answers), Picture(pixels, ("grey", "crop_to_ink")))


def test_colours_are_half_blocks_of_24_bits():
    """The upper pixel is the sign's colour, the lower one that behind it."""
    image = np.zeros((3, 3, 2), np.uint8)
    image[:, 0, 0], image[:, 1, 0], image[:, 2, 0] = (255, 0, 1), (2, 3, 4), (5, 6, 7)
    rows, width = colour_blocks(image)
    assert width == 2
    assert rows == [
        "\x1b[38;2;255;0;1;48;2;2;3;4m▀\x1b[38;2;0;0;0;48;2;0;0;0m▀\x1b[0m",
        "\x1b[38;2;5;6;7m▀\x1b[38;2;0;0;0m▀\x1b[0m",
    ]


def test_in_colours_the_same_words_stand_at_the_same_places():
    """What is not ours holds no escape sequence, whatever the names are."""
    image = np.random.default_rng(1).integers(0, 256, (3, 20, 24), np.uint8)
    found = prediction({"a\x1b[2Jcat": 0.25, "dog": 0.75}, image)
    parts = as_colours(found, "a/5.png")
    assert all("\x1b" not in text for text, ours in parts if not ours)
    plain = as_text(found, "a/5.png").splitlines()
    bare = "".join(re.sub(r"\x1b\[[0-9;]*m", "", text) for text, _ in parts).splitlines()
    assert [line[24:] for line in bare[1 : len(plain)]] == [line[24:] for line in plain[1:]]
    assert bare[0] == plain[0]


def test_a_doubt_is_in_the_headline_and_in_every_format():
    found = replace(prediction({"cat": 0.25, "dog": 0.75}), doubt="less than 80%")
    assert as_text(found, "5.png").splitlines()[0] == (
        "5.png: not sure (less than 80%); likeliest: dog  75.0%"
    )
    assert found.to_row()[-1] == "less than 80%"
    assert (found.to_json()["sure"], found.to_json()["doubt"]) == (False, "less than 80%")
    sure = prediction({"dog": 1.0})
    assert (sure.to_json()["sure"], sure.to_json()["doubt"]) == (True, None)


def test_two_pixels_are_one_half_block():
    image = np.array([[[0, 255, 0, 255], [0, 0, 255, 255], [255, 0, 0, 0]]], np.uint8)
    assert blocks(image) == [" ▀▄█", "▀   "]


def test_a_grey_picture_is_dithered_by_its_density():
    ramp = np.tile(np.linspace(0, 255, 32).astype(np.uint8), (3, 32, 1))
    lines = blocks(ramp)
    assert (len(lines), len(lines[0])) == (16, 32)
    filled = [sum(line[x] != " " for line in lines) for x in range(32)]
    assert filled[0] == 0
    assert filled[-1] == 16
    assert 0 < sum(filled[8:24]) / (16 * 16) < 1


def test_large_pictures_become_small_ones():
    lines = blocks(np.full((3, 224, 448), 255, np.uint8))
    assert lines == ["█" * 32] * 8


def test_the_chart_has_a_bar_for_each_class_in_order():
    text = as_text(prediction({"0": 0.25, "1": 0.5, "2": 0.0, "3": 0.25}), "a/5.png")
    lines = text.splitlines()
    assert lines[0] == "a/5.png: 1  50.0%"
    chart = [line.split() for line in lines[1:5]]
    assert [row[:-1] if len(row) > 2 else row for row in chart[:1]] == [["0", "25.0%"]]
    assert [row[0] for row in chart] == ["0", ">", "2", "3"]
    bars = [row[-1].count("█") if "█" in row[-1] else 0 for row in chart]
    assert bars[0] == bars[3] == pytest.approx(bars[1] / 2, abs=1)
    assert bars[2] == 0
    assert bars[1] > 15
    assert max(map(len, lines)) <= 80
    assert "grey, crop to ink" in text
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_the_best_come_first_where_that_is_asked_for():
    shares = {"0": 0.25, "1": 0.5, "2": 0.05, "3": 0.2}
    best_first = as_text(prediction(shares), "x", best_first=True).splitlines()
    assert [line.split("%")[0].split()[-2] for line in best_first[1:5]] == ["1", "0", "3", "2"]
    in_order = as_text(prediction(shares), "x").splitlines()
    assert [line.split("%")[0].split()[-2] for line in in_order[1:5]] == ["0", "1", "2", "3"]


def test_long_labels_are_cut_and_lines_stay_within_80_columns():
    shares = {f"a class with a very long name, the {k}th": 0.1 for k in range(10)}
    steps = tuple(f"step_{k}_of_many" for k in range(12))
    found = prediction(shares, np.full((1, 28, 28), 255, np.uint8))
    found = Prediction(found.path, found.top, Picture(found.picture.image, steps))
    lines = as_text(found, "x").splitlines()
    assert max(map(len, lines)) <= 80
    assert "step 11 of many" in " ".join(" ".join(lines).split())


def test_plain_text_is_ascii():
    image = np.tile(np.array([[255, 0], [0, 255]], np.uint8), (1, 14, 14))
    text = as_text(prediction({"0": 0.1, "1": 0.9}, image), "x", plain=True)
    assert text.isascii()
    assert '".".' in text
    assert "####" in text


@pytest.mark.parametrize(
    ("classes", "top", "count"), [(10, None, 10), (14, None, 14), (15, None, 10), (10, 3, 3)]
)
def test_how_many_classes_are_shown(classes, top, count):
    assert wanted(classes, top) == count


def test_a_row_of_csv_can_be_read_back():
    row = prediction({"cat": 0.25, "dog": 0.75}).to_row()
    assert len(row) == len(COLUMNS)
    assert row[:5] == ("a/5.png", "dog", "1", "0.750000", "dog=0.750000 cat=0.250000")
    assert row[5:] == ("grey crop_to_ink", "")
    assert csv.list_dialects()


def test_csv_has_a_column_for_each_class_whatever_its_name():
    classes = ("sea lion", "a=b, c", 'say "x"', "=1+1", "two\nlines", "label")
    shares = {name: (at + 1) / 21 for at, name in enumerate(classes)}
    found = replace(prediction(shares), probabilities=tuple(shares.values()))
    lines = "\n".join(csv_row(row) for row in (columns(classes), found.to_row()))
    (row,) = csv.DictReader(io.StringIO(lines))
    assert row["label"] == "label"
    for name, share in shares.items():
        shown = name.replace("\n", "\\n")
        assert float(row[f"probability:{shown}"]) == pytest.approx(share, abs=1e-6)


def test_inputs_are_saved_as_the_network_saw_them(tmp_path):
    rng = np.random.default_rng(0)
    folder = InputFolder(tmp_path / "new" / "seen")
    grey = rng.integers(0, 256, (1, 28, 28), np.uint8)
    colour = rng.integers(0, 256, (3, 32, 32), np.uint8)
    one = folder.save(prediction({"0": 1.0}, grey, "a/5.png"))
    two = folder.save(prediction({"0": 1.0}, colour, "b/5.jpg"))
    assert [path.name for path in (one, two)] == ["5-input.png", "5-2-input.png"]
    with Image.open(one) as picture:
        np.testing.assert_array_equal(np.asarray(picture), grey[0])
    with Image.open(two) as picture:
        np.testing.assert_array_equal(np.asarray(picture).transpose(2, 0, 1), colour)


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DatasetError, match=r"file: cannot be written: .*--save-input"):
        InputFolder(tmp_path / "file")
    folder = InputFolder(tmp_path / "seen")
    (tmp_path / "seen" / "5-input.png").mkdir()
    with pytest.raises(DatasetError, match="cannot be written"):
        folder.save(prediction({"0": 1.0}))
