"""On a terminal no line is longer than its width, and no word is broken."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from dnnstack.cli.sweep_screen import SweepScreen
from dnnstack.common.cells import cells
from dnnstack.datasets import Picture
from dnnstack.reports.predict_text import as_colours, as_text
from dnnstack.training.inference.predict import Answer, Prediction
from PIL import Image

from ..support.picture_folders import paint

COLUMNS = 50
On = Callable[..., list[str]]


@pytest.fixture
def on_terminal(command, environment, tmp_path):
    """The lines that a command prints on a terminal of 50 columns."""

    def on(*words: str) -> list[str]:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        with subprocess.Popen(
            [*command, *words],
            cwd=tmp_path,
            env={**environment, "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ):
            os.close(theirs)
            text = b""
            # A terminal whose last writer is gone is an error of its reader.
            try:
                while piece := os.read(ours, 4096):
                    text += piece
            except OSError:
                pass
        os.close(ours)
        return text.decode().splitlines()

    return on


def test_what_is_found_in_a_folder(on_terminal, tmp_path):
    names = ("猫" * 30, "a dog", "ünï")
    for number in range(24):
        paint(tmp_path / "pictures" / names[number % 3] / f"{number}.png", number)
    lines = on_terminal("new", "pictures")
    assert max(map(cells, lines)) <= COLUMNS
    at = lines.index(next(line for line in lines if line.startswith("class")))
    counts = lines[at : at + 4]
    assert {cells(line) for line in counts} == {COLUMNS}
    assert any(line.startswith("猫猫") and "… " in line for line in counts)


def test_a_trial_keeps_its_words_whole_above_the_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dnnstack.cli.screen.columns", lambda stream: COLUMNS)
    screen = SweepScreen(cast(Any, None), silent=False)
    screen._bar = SimpleNamespace(write=lambda text, file: file.write(text))
    words = "trial-7: accuracy 97.50% (best); optimizer.lr 0.0123, layers.dense_1.units 96"
    screen._print(words)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(cells, lines)) <= COLUMNS
    assert " ".join(" ".join(lines).split()) == words


@pytest.mark.parametrize("short", [["--short"], []])
def test_an_answer_keeps_its_words_whole(on_terminal, trained, tmp_path, short):
    name = "a picture of a one by hand on a sheet of paper.png"
    page = Image.new("L", (60, 60), 255)
    page.paste(0, (27, 10, 33, 50))
    page.save(tmp_path / name)
    run = next((trained / "runs").iterdir())
    lines = on_terminal("predict", "--device", "numpy", "--run", str(run), *short, name)
    at = next(i for i, line in enumerate(lines) if line.startswith("a picture"))
    assert cells(lines[at]) <= COLUMNS
    assert "".join(" ".join(lines[at : at + 2]).split()).startswith(f"{name}:".replace(" ", ""))
    assert lines[at].rpartition(" ")[2] in f"{name}:".split()


@pytest.mark.parametrize("width", [20, 24, 30, 40, 50, 54, 58, 70])
@pytest.mark.parametrize("side", [8, 28, 32, 300])
def test_the_chart_of_an_answer_fits(width, side):
    """Beside the picture, or below it where that leaves too little; bars keep their lengths."""
    shares = {"a class with a long name": 0.5, "猫猫猫猫猫猫猫猫猫猫": 0.25, "ü": 0.25}
    answers = tuple(Answer(label, i, p) for i, (label, p) in enumerate(shares.items()))
    pixels = np.full((3, side, side), 255, np.uint8)
    found = Prediction(Path("a"), answers, Picture(pixels, ("grey", "crop_to_ink")))
    colours = "".join(text for text, _ in as_colours(found, "a", width=width))
    for text in (as_text(found, "a", width=width), colours):
        rows = [line for line in text.splitlines()[1:] if "%" in line]
        assert len(rows) == 3
        assert max(map(cells, text.splitlines()[1:])) <= width
        bars = [line.rpartition("%")[2].count("█") for line in rows]
        assert bars[0] >= 2
        assert bars[0] >= bars[1] == bars[2]


def test_findings_and_errors_keep_their_words_whole(on_terminal, tmp_path):
    found = on_terminal("doctor", "--data-dir", "nowhere")
    # Only what has no space may be longer: paths, and lists without spaces.
    assert all(cells(line) <= COLUMNS or " " not in line.strip() for line in found)
    assert any(line.split()[0] == "cache" for line in found if line.strip())
    error = on_terminal("train", "--config", "digits.yaml", "--set", "optimizer.lrr=1")
    assert len(error) > 1
    assert max(map(cells, error)) <= COLUMNS
    assert " ".join(line.strip() for line in error).startswith(
        "dnnstack: error: --set optimizer.lrr=1"
    )
