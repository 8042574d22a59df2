from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from dnnstack.cli import console
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import Picture
from dnnstack.reports.predict_text import as_text, blocks, colour_blocks, wanted
from dnnstack.training.inference.predict import Answer, InputFolder, Prediction
from numpy.typing import NDArray
from PIL import Image


def prediction(
    shares: dict[str, float], image: NDArray[np.uint8] | None = None, path: str = "a/5.png"
) -> Prediction:
    answers = [Answer(label, i, share) for i, (label, share) in enumerate(shares.items())]
    answers.sort(key=lambda answer: -answer.probability)
    pixels = np.zeros((1, 28, 28), np.uint8) if image is None else image
    return Prediction(Path(path), tuple(answers), Picture(pixels, ("grey", "crop_to_ink")))


@pytest.mark.parametrize(
    ("classes", "top", "count"), [(10, None, 10), (14, None, 14), (15, None, 10), (10, 3, 3)]
)
def test_how_many_classes_are_shown(classes, top, count):
    assert wanted(classes, top) == count


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


COLOURS = [
    # A colour, and the codes of 16, 256 and all colours before what is above.
    ((0, 0, 0), "30", "38;5;16", "38;2;0;0;0"),
    ((250, 10, 5), "31", "38;5;196", "38;2;250;10;5"),
    ((255, 95, 92), "91", "38;5;203", "38;2;255;95;92"),
    ((0, 0, 210), "34", "38;5;20", "38;2;0;0;210"),
    ((1, 200, 3), "32", "38;5;40", "38;2;1;200;3"),
    ((255, 255, 255), "97", "38;5;231", "38;2;255;255;255"),
    ((128, 128, 128), "90", "38;5;244", "38;2;128;128;128"),
    ((9, 9, 9), "30", "38;5;232", "38;2;9;9;9"),
]


@pytest.mark.parametrize("row", COLOURS, ids=lambda row: str(row[0]))
def test_a_picture_in_the_colours_of_a_terminal(row):
    colour, *codes = row
    pixels = np.tile(np.array(colour, np.uint8)[:, None, None], (1, 3, 1))
    for colours, code in zip((16, 256, 1 << 24), codes, strict=True):
        below = code.replace("38;", "48;") if colours > 16 else str(int(code) + 10)
        expected = [f"\x1b[{code};{below}m▀\x1b[0m", f"\x1b[{code}m▀\x1b[0m"]
        assert colour_blocks(pixels, 32, colours) == (expected, 1)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, 1 << 24),
        ({"TERM": "screen", "COLORTERM": "24bit"}, 1 << 24),
        ({"TERM": "tmux-256color"}, 256),
        ({"TERM": "xterm-256color", "COLORTERM": "yes"}, 256),
        ({"TERM": "screen"}, 16),
        ({"TERM": "linux"}, 16),
        ({"TERM": "vt100"}, 0),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, 0),
        ({}, 0),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, 0),
    ],
)
def test_how_many_colours_a_terminal_has(settings, count, monkeypatch):
    for name in ("TERM", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert console.colours(sys.stdout) == 0
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert console.colours(sys.stdout) == count


def test_what_has_more_than_two_tones_is_not_drawn_without_colours():
    photo = np.linspace(0, 255, 3 * 32 * 32).reshape(3, 32, 32).astype(np.uint8)
    assert blocks(photo) == []
    digit = np.zeros((1, 28, 28), np.uint8)
    digit[:, 4:24, 12:16] = 255
    assert "█" in "".join(blocks(digit))
    # Up to 15% may lie between.
    digit[:, :4] = 128
    assert blocks(digit) != []
    digit[:, :5] = 128
    assert blocks(digit) == []
    answers = {"cat": 0.75, "dog": 0.25}
    for text in (
        as_text(prediction(answers, photo), "a.png"),
        as_text(prediction(answers, np.zeros((1, 28, 28), np.uint8)), "a.png", drawn=False),
    ):
        assert text.startswith("a.png: cat  75.0%\n  > cat  75.0% ██")
        assert not re.search("[▀▄]", text)
