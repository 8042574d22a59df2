"""Tables of text, aligned by the columns that a terminal shows and fitted into its width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..common.cells import cells, padded, wrapped
from ..common.printable import printable
from ..common.text import cut

WIDTH = 80
"""Columns of a text where no terminal says how many it has."""
NAME = 44
"""Columns of a long name, such as that of a parameter, in a row."""
CLASS = 16
"""Columns of a class in a sentence."""
GAP = "  "
_FIRST = {0: 1}
_SHORTEST = 8


def table(
    rows: Sequence[Sequence[object]],
    align: str = "<>",
    width: int | None = None,
    names: Mapping[int, int] = _FIRST,
    prose: bool = False,
    whole_heads: bool = False,
) -> list[str]:
    """The rows as lines, each column as wide as its widest cell, with two spaces between.

    Cells are made printable. A table that is wider than ``width`` has the cells of its last
    column continued on further lines if these are ``prose``, else its ``names`` cut, the longest
    first.

    align: ``<`` or ``>`` for each column; the last sign holds for all columns that follow.
    names: the columns that may be cut, each with its share of the room; eight signs are left, and
    with ``whole_heads`` the first row, though the table is wider then.
    """
    texts = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(*texts, strict=True)]
    signs = align.ljust(len(widths), align[-1])
    if width is not None and not prose:
        least = [max(_SHORTEST, cells(head) if whole_heads else 0) for head in texts[0]]
        _shorten(widths, width - len(GAP) * (len(widths) - 1) - sum(widths), names, least)
    lines: list[str] = []
    for row in texts:
        shown = [
            padded(cut(text, size), size, sign)
            for text, size, sign in zip(row, widths, signs, strict=False)
        ]
        line = GAP.join(shown).rstrip()
        if prose and width is not None:
            lines += wrapped(line, width, cells(GAP.join([*shown[:-1], ""])))
        else:
            lines.append(line)
    return lines


def fitted(
    rows: Sequence[Sequence[object]], align: str, width: int | None, spared: Sequence[int]
) -> list[str]:
    """The same; while it is wider than ``width`` though names are cut, columns are left out.

    spared: their numbers among those that are left, in this order.
    """
    lines = table(rows, align, width)
    for column in spared:
        if width is None or max(map(cells, lines)) <= width:
            break
        rows = [[*row[:column], *row[column + 1 :]] for row in rows]
        lines = table(rows, align, width)
    return lines


def _shorten(widths: list[int], room: int, names: Mapping[int, int], least: Sequence[int]) -> None:
    """Take what ``room`` lacks, if it is below 0, from the columns ``names``, by their shares."""
    for _ in range(-room):
        longer = [column for column in names if widths[column] > least[column]]
        if not longer:
            return
        widths[max(longer, key=lambda column: widths[column] / names[column])] -= 1
