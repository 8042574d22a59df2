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

import pytest
from dnnstack.common.cells import cells

from ..support.picture_folders import paint

COLUMNS = 50
On = Callable[..., list[str]]


@pytest.fixture
def on_terminal(command: list[str], environment: dict[str, str], tmp_path: Path) -> On:
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


def test_what_is_found_in_a_folder(on_terminal: On, tmp_path: Path) -> None:
    names = ("猫" * 30, "a dog", "ünï")
    for number in range(24):
        paint(tmp_path / "pictures" / names[number % 3] / f"{number}.png", number)
    lines = on_terminal("new", "pictures")
    assert max(map(cells, lines)) <= COLUMNS
    at = lines.index(next(line for line in lines if line.startswith("class")))
    counts = lines[at : at + 4]
    assert {cells(line) for line in counts} == {COLUMNS}
    assert any(line.startswith("猫猫") and "… " in line for line in counts)


def test_findings_and_errors_keep_their_words_whole(on_terminal: On, tmp_path: Path) -> None:
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
