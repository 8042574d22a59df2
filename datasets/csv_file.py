"""Files of separated values (CSV, TSV), plain or of gzip, read by Python's csv module."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
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
# Rows by which the separator is found.
_LOOKED_AT = 20
# A cell of text takes so many times its bytes in the file.
_TIMES = 8
_PIECE, _LONGEST = 1 << 20, 1 << 24


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


def read_rows(
    path: Path,
    separator: str | None = None,
    encoding: Encoding | None = None,
    check: Callable[[Rows], object] = lambda head: None,
) -> Rows:
    """The table of a file, whose first line has the names of the columns.

    separator: a key of ``SEPARATORS``, by default that which divides the first lines best.
    encoding: by default UTF-8, or UTF-16 if the file begins with its mark. ``check`` is given the
    table without rows before these are read. Empty lines are left out. Raises DatasetError that
    names the line.
    """
    pieces = _pieces(path, encoding)
    first = next(pieces, [])
    sign = SEPARATORS[separator] if separator else _separator(first)
    reader = csv.reader(chain(first, chain.from_iterable(pieces)), delimiter=sign, strict=True)
    head: Rows | None = None
    known: dict[str, str] = {}
    lines: list[int] = []
    cells: list[list[str]] = []
    line = 1
    try:
        for row in reader:
            begun, line = line, reader.line_num + 1
            if not row:
                continue
            found = [known.setdefault(cell, cell) for cell in map(str.strip, row)]
            if head is None:
                head = Rows(path, _checked(path, begun, found), lines, cells, sign == ";")
                check(head)
                continue
            if len(found) != len(head.names):
                raise DatasetError(
                    f"{path}: line {begun}: has {len(found)} cells, but the first line names "
                    f"{len(head.names)} columns; a cell with the separator {sign!r} in it needs "
                    "quotes"
                )
            lines.append(begun)
            cells.append(found)
    except csv.Error as error:
        raise DatasetError(
            f"{path}: line {line}: {error}; a quote within a quoted cell is written twice"
        ) from None
    if head is None or not cells:
        raise DatasetError(
            f"{path}: has no rows; the first line names the columns, the others are samples"
        )
    return head


def _pieces(path: Path, encoding: Encoding | None) -> Iterator[list[str]]:
    """The lines of a file as they come from the disk. Raises DatasetError that names the line."""
    most, size, line, rest, decoder = main_memory() // _TIMES, 0, 1, "", None
    try:
        with open(open_regular(path), "rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            source = unpacked(file) if packed else file
            piece = source.read(_PIECE)
            while piece:
                after, size = source.read(_PIECE), size + len(piece)
                if size > most or len(rest) > _LONGEST:
                    raise DatasetError(
                        f"{path}: takes more than {most:,} bytes, for which memory is too small, "
                        f"or has a line of more than {_LONGEST:,} characters; divide it"
                    )
                if decoder is None:
                    marked = [name for mark, name in _MARKS.items() if piece.startswith(mark)]
                    named = encoding if encoding == "latin-1" else (marked or ["utf-8"])[0]
                    decoder = codecs.getincrementaldecoder(named)()
                text = rest + decoder.decode(piece, not after)
                if (at := text.find("\0")) >= 0:
                    line += text.count("\n", 0, at)
                    raise DatasetError(
                        f"{path}: line {line}: has a zero byte, which is no text; save the file as "
                        "UTF-8"
                    )
                found = io.StringIO(text, newline="").readlines()
                # The last one may go on.
                rest = found.pop() if after and found else ""
                yield found
                piece, line = after, line + len(found)
    except GzipError as error:
        raise DatasetError(f"{path}: is damaged: {error}") from None
    except UnicodeDecodeError as error:
        before = error.object[: error.start].count(b"\n") + rest.endswith("\n")
        raise DatasetError(
            f"{path}: line {line + before}: is not {'UTF-8' if '8' in named else 'UTF-16'}; save "
            "the file as UTF-8, or set encoding: latin-1 beside 'train' in the config if it is that"
        ) from None
    except OSError as error:
        raise unreadable(path, error) from None


def _separator(lines: Sequence[str]) -> str:
    """The sign that divides the first lines into most columns, if one can the same in all."""

    def columns(sign: str) -> tuple[bool, int]:
        widths: list[int] = []
        with suppress(csv.Error):
            rows = filter(None, csv.reader(lines, delimiter=sign))
            widths += map(len, islice(rows, _LOOKED_AT))
        first = widths[0] if widths else 0
        return first > 1 and {*widths} == {first}, first

    # Of equals the first: a comma.
    return max(SEPARATORS.values(), key=columns)


def _checked(path: Path, line: int, names: list[str]) -> tuple[str, ...]:
    for at, name in enumerate(names):
        if name and name in names[:at]:
            raise DatasetError(
                f"{path}: line {line}: two columns have the name '{name}'; give one another name"
            )
    return tuple(names)
