"""Text in the columns of a terminal: most signs take one, Chinese ones and emoji two, accents none.

The widths are those of ``wcwidth``; ASCII, which is nearly all text, does without it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TextIO

from .printable import encodable

_ESCAPES = re.compile("\x1b\\[[0-9;]*m")
_TITLE = re.compile(r" ?\S+(?: \S+)* {2,}(?=\S)")
# What is to be copied as a whole.
_COMMAND = re.compile("(resume with|start with|next) +dnnstack ")
_WIDEST_TITLE = 26
_NARROWEST = 16


def cells(text: str) -> int:
    """The columns that a text takes once it is printed; codes of colours take none."""
    return unicode_cells(encodable(text))


def unicode_cells(text: str) -> int:
    """The same where every character can be shown, whatever the encoding of the output."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if text.isascii():
        return len(text)
    from wcwidth import wcswidth

    width = wcswidth(text)
    # Signs that a terminal obeys have no width; they are made printable before they are shown.
    return len(text) if width < 0 else width


def padded(text: str, width: int, align: str = "<") -> str:
    """The text with spaces after it (``<``) or before it (``>``), ``width`` columns in all."""
    room = " " * (width - cells(text))
    return f"{room}{text}" if align == ">" else f"{text}{room}"


def columns(stream: TextIO) -> int | None:
    """The width of a terminal: COLUMNS, or what it says, or 80; None for a pipe or a file."""
    if not stream.isatty():
        return None
    width = asked_columns()
    if not width:
        with suppress(OSError, ValueError):
            width = os.get_terminal_size(stream.fileno()).columns
    return width or 80


def asked_columns() -> int:
    """What the environment says in COLUMNS; 0 for nothing."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdigit() else 0


def wrapped(line: str, width: int, indent: int | None = None) -> list[str]:
    """The line in pieces of at most ``width`` columns, broken at spaces; a longer word is whole.

    indent: of all pieces but the first; by default they stand under the text after a title such as
    ``saved       ``, or two columns to the right of the line's beginning.
    """
    if cells(line) <= width or _COMMAND.match(line):
        return [line]
    if indent is None:
        title = _TITLE.match(line)
        own = len(line) - len(line.lstrip(" "))
        indent = own + 2
        if title is not None and cells(title[0]) <= _WIDEST_TITLE:
            indent = cells(title[0])
    if width - indent < _NARROWEST:
        indent = min(indent, 2)
    pieces: list[str] = []
    # The spaces before a word belong to it, so that columns within a line are kept.
    for word in re.findall(r" *[^ ]+", line):
        if pieces and (cells(pieces[-1]) + cells(word) <= width or not pieces[-1].strip()):
            pieces[-1] += word
        elif pieces:
            pieces.append(" " * indent + word.lstrip(" "))
        else:
            pieces.append(word)
    return pieces


def wrapped_lines(text: str, width: int | None) -> str:
    """Every line of a text wrapped; unchanged without a width."""
    if width is None:
        return text
    pieces = [piece for line in text.split("\n") for piece in wrapped(line, width)]
    return "\n".join(pieces)
