"""Files of separated values (CSV, TSV), plain or of gzip, read whole by Python's csv module."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ..common.errors import DatasetError
from ..common.files import open_regular
from ..common.machine import main_memory
from ..common.records import dataclass
from .gzip_file import GzipError, unpacked
from .image_set import unreadable

Encoding = Literal["utf-8", "utf-16", "latin-1"]
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_GZIP = b"\x1f\x8b"
# Rows and characters by which the separator is found.
_LOOKED_AT, _LOOKED_INTO = 20, 1 << 20
# A cell of text takes so many times its bytes in the file.
_TIMES = 8
_PIECE = 1 << 20


@dataclass(frozen=True)
class Rows:
    """names: of the columns; lines: (M,), where each row begins in the file, from 1.

    cells: (M, columns), without spaces around them. comma: numbers may have a decimal comma.
    """

    path: Path
    names: tuple[str, ...]
    lines: Sequence[int]
    cells: Sequence[Sequence[str]]
    comma: bool = False

    def __len__(self) -> int:
        return len(self.cells)

    def at(self, row: int, name: str) -> str:
        """Where a cell is, for messages."""
        line = f"line {self.lines[row]}" if self.lines else f"row {row + 1}"
        return f"{self.path}: {line}, column '{name}'"

    def column(self, name: str) -> list[str]:
        place = self.names.index(name)
        return [row[place] for row in self.cells]


def read_rows(path: Path, separator: str | None = None, encoding: Encoding | None = None) -> Rows:
    """The table of a file, whose first line has the names of the columns.

    separator: a key of ``SEPARATORS``, by default that which divides the first lines best.
    encoding: by default UTF-8, or UTF-16 if the file begins with its mark. Empty lines are left
    out. Raises DatasetError that names the line.
    """
    text = _text(path, encoding)
    sign = SEPARATORS[separator] if separator else _separator(text)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=sign, strict=True)
    names: tuple[str, ...] = ()
    known: dict[str, str] = {}
    lines, cells, line = [], [], 1
    try:
        for row in reader:
            begun, line = line, reader.line_num + 1
            if not row:
                continue
            found = [known.setdefault(cell, cell) for cell in map(str.strip, row)]
            if not names:
                names = _checked(path, begun, found)
                continue
            if len(found) != len(names):
                raise DatasetError(
                    f"{path}: line {begun}: has {len(found)} cells, but the first line names "
                    f"{len(names)} columns; a cell with the separator {sign!r} in it needs quotes"
                )
            lines.append(begun)
            cells.append(found)
    except csv.Error as error:
        raise DatasetError(
            f"{path}: line {line}: {error}; a quote within a quoted cell is written twice"
        ) from None
    if not cells:
        raise DatasetError(
            f"{path}: has no rows; the first line names the columns, the others are samples"
        )
    return Rows(path, names, lines, cells, sign == ";")


def _text(path: Path, encoding: Encoding | None) -> str:
    most = main_memory() // _TIMES
    try:
        with open(open_regular(path), "rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            source, pieces, size = unpacked(file) if packed else file, [], 0
            while size <= most and (piece := source.read(_PIECE)):
                pieces.append(piece)
                size += len(piece)
    except GzipError as error:
        raise DatasetError(f"{path}: is damaged: {error}") from None
    except OSError as error:
        raise unreadable(path, error) from None
    if size > most:
        raise DatasetError(
            f"{path}: takes more than {most:,} bytes, for which memory is too small; divide it"
        )
    content = b"".join(pieces)
    marked = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding if encoding == "latin-1" else marked)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise DatasetError(
            f"{path}: line {line}: is not {'UTF-8' if '8' in marked else 'UTF-16'}; save the file "
            "as UTF-8, or set encoding: latin-1 beside 'train' in the config if it is that"
        ) from None
    if (at := text.find("\0")) >= 0:
        line = text.count("\n", 0, at) + 1
        raise DatasetError(
            f"{path}: line {line}: has a zero byte, which is no text; save the file as UTF-8"
        )
    return text


def _separator(text: str) -> str:
    """The sign that divides the first lines into most columns, if one can the same in all."""
    head = text[:_LOOKED_INTO]

    def columns(sign: str) -> tuple[bool, int]:
        widths = [0]
        with suppress(csv.Error):
            for row in csv.reader(io.StringIO(head, newline=""), delimiter=sign):
                widths += [len(row)] * bool(row)
                if len(widths) > _LOOKED_AT:
                    break
        # The last line that was looked into may be cut off.
        same = len({*(widths[1:] if len(head) == len(text) else widths[1:-1])}) == 1
        first = widths[1] if len(widths) > 1 else 0
        return same and first > 1, first

    # Of equals the first: a comma.
    return max(SEPARATORS.values(), key=columns)


def _checked(path: Path, line: int, names: list[str]) -> tuple[str, ...]:
    for at, name in enumerate(names):
        if name and name in names[:at]:
            raise DatasetError(
                f"{path}: line {line}: two columns have the name '{name}'; give one another name"
            )
    return tuple(names)
