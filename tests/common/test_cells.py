"""Widths of text in a terminal, and lines that are broken at spaces."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios

import pytest
from dnnstack.common.cells import cells, columns, padded, wrapped
from dnnstack.common.text import cut

from ..support.stored import cases


@pytest.mark.parametrize(("text", "width"), cases(__file__, "width_and_padding"))
def test_width_and_padding(text, width):
    assert cells(text) == width
    assert padded(text, width + 2) == f"{text}  "
    assert padded(text, width + 2, ">") == f"  {text}"


@pytest.mark.parametrize(("text", "width", "shown"), cases(__file__, "a_cut_text_fits"))
def test_a_cut_text_fits(text, width, shown):
    assert cut(text, width) == shown
    assert cells(shown) <= width


@pytest.mark.parametrize(("line", "pieces"), cases(__file__, "lines_are_broken_at_spaces"))
def test_lines_are_broken_at_spaces(line, pieces):
    assert wrapped(line, 20) == pieces


def test_what_follows_a_title_stays_beside_it():
    line = "saved       one two three four five six seven"
    assert wrapped(line, 36) == ["saved       one two three four five", "            six seven"]
    # Where that would leave next to nothing, it does not.
    assert wrapped(line, 24)[1].startswith("  three")


def test_the_width_is_that_of_the_terminal(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    ends = pty.openpty()
    with os.fdopen(ends[1], "w") as terminal:
        assert columns(terminal) == 80
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 57, 0, 0))
        assert columns(terminal) == 57
        monkeypatch.setenv("COLUMNS", "44")
        assert columns(terminal) == 44
    os.close(ends[0])
    with open(os.devnull, "w") as nowhere:
        assert columns(nowhere) is None


def test_a_command_to_be_copied_is_whole():
    line = (
        "resume with dnnstack train --config runs/a-long-name/config.yaml --resume runs/a-long-name"
    )
    assert wrapped(line, 40) == [line]
