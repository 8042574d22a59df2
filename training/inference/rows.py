"""The answers of a network that was trained on a table in a file, for the rows of another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import DatasetError
from ...common.printable import printable
from ...common.records import dataclass
from ...common.targets import Kind
from ...configs import RunConfig
from ...datasets.columns import number
from ...datasets.csv_file import Rows, read_rows
from .predict import guarded

_TITLES: dict[Kind, str] = {
    "numbers": "predicted",
    "yes_no": "probability",
    "distribution": "share",
}


def rows_of(given: object, config: RunConfig) -> Rows:
    """The rows of a file, or of a list of mappings from names to values. Raises DatasetError."""
    if isinstance(given, Rows):
        return given
    if isinstance(given, (str, Path)):
        options = config.data.dataset.options()
        return read_rows(Path(given), options["separator"], options["encoding"])
    rows = [dict(each) for each in given] if isinstance(given, (list, tuple)) else []
    names = tuple(map(str, rows[0])) if rows else ()
    for at, row in enumerate(rows, 1):
        if {*map(str, row)} != {*names}:
            raise DatasetError(f"the rows: row {at} has other keys than the first")
    cells = [[_cell(row[name]) for name in rows[0]] for row in rows]
    return Rows(Path("the rows"), names, (), cells)


def _cell(value: object) -> str:
    if isinstance(value, (bool, np.bool_)):
        return str(value).lower()
    nothing = value is None or (isinstance(value, float) and math.isnan(value))
    return "" if nothing else str(value).strip()


@dataclass(frozen=True)
class RowAnswers:
    """What a network answers to each of some rows; found: (M, K), of ``classes``."""

    rows: Rows
    kind: Kind
    classes: tuple[str, ...]
    found: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    def header(self) -> tuple[str, ...]:
        """The columns of the file, then those of the answers."""
        names = map(printable, self.classes)
        if self.kind == "class":
            own = ("label", "probability", *(f"probability:{name}" for name in names))
        else:
            own = tuple(f"{_TITLES[self.kind]}:{name}" for name in names)
        return (*map(guarded, self.rows.names), *own)

    def to_row(self, at: int) -> tuple[str, ...]:
        """The same of a row: cells as they were, but none that a spreadsheet takes for a formula.

        A number may begin with a sign.
        """
        kept = (
            cell if number(cell, self.rows.comma) is not None else guarded(cell)
            for cell in self.rows.cells[at]
        )
        values = [f"{value:.7g}" for value in self.found[at].tolist()]
        best = int(self.found[at].argmax())
        own = (guarded(printable(self.classes[best])), values[best]) if self.kind == "class" else ()
        return (*kept, *own, *values)

    def to_json(self, at: int) -> dict[str, Any]:
        best = int(self.found[at].argmax())
        answers = dict(zip(self.classes, self.found[at].tolist(), strict=True))
        own: dict[str, Any] = {"line": self.rows.lines[at], "kind": self.kind}
        if self.kind == "class":
            own |= {"label": self.classes[best], "index": best}
        return {"path": str(self.rows.path), **own, "answers": answers}

    def to_text(self, at: int, top: int) -> str:
        """``FILE: line 2: rose 97.1%, lily 2.0%``."""
        values: Sequence[float] = self.found[at].tolist()
        order = [*range(len(values))]
        if self.kind in ("class", "distribution"):
            order = sorted(order, key=lambda k: -values[k])[:top]
        shown = (
            f"{self.classes[k]} {values[k]:.6g}"
            if self.kind == "numbers"
            else f"{self.classes[k]} {values[k]:.1%}"
            for k in order
        )
        return printable(f"{self.rows.path}: line {self.rows.lines[at]}: {', '.join(shown)}")
