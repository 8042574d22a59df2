"""Columns of a table as numbers: their types, found in a file of rows to train on."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from annotated_types import MaxLen
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.records import dataclass
from ..common.targets import Kind
from ..common.text import listed, suggested
from ..common.typed_json import Finite, Name
from .csv_file import Rows

if TYPE_CHECKING:
    from .image_set import ImageSet

Type = Literal["number", "yes_no", "category"]
Missing = Literal["error", "mean", "drop"]
Unknown = Literal["error", "zeros"]
MOST_CATEGORIES, _MOST_COLUMNS = 200, 1 << 16
YES, NO = ("1", "yes", "y", "true", "t"), ("0", "no", "n", "false", "f")
_NOTHING = {"", "na", "n/a", "nan", "null", "none", "?"}
# Float32 has 24 bits; an offset that takes more than these is subtracted in float64.
_FAR = 1024.0
_LARGEST = float(np.finfo(np.float32).max)
MISSING, _NAMED = -1, 5


@dataclass(frozen=True)
class Column:
    """An input: a number, less its ``offset``; yes as 1, no as 0; a 1 for one of its categories.

    ``binary``: a number that is 0 or 1 in all rows of the file. ``mean``: of the rows that are
    trained on, which stands for a missing one; empty before these are known. Of categories it is
    their shares: one without a share is as unknown as any other.
    """

    name: Name
    type: Type
    mean: Annotated[tuple[Finite, ...], MaxLen(MOST_CATEGORIES)] = ()
    categories: Annotated[tuple[Name, ...], MaxLen(MOST_CATEGORIES)] = ()
    offset: Finite = 0.0
    binary: bool = False

    @property
    def width(self) -> int:
        return len(self.categories) or 1

    @property
    def standardised(self) -> bool:
        """Whether ``normalize: measured`` applies to it."""
        return self.type == "number" and not self.binary

    def about(self) -> str:
        """``category: a, b and 3 more``."""
        more = f": {listed(self.categories, _NAMED)}" if self.categories else ""
        return f"{'0 or 1' if self.binary else self.type.replace('_', ' or ')}{more}"


@dataclass(frozen=True)
class Columns:
    """What a file of rows to train on says of a table; what ``predict`` needs to read another.

    targets: the names of their columns; classes: of the classes, else ``targets``.
    """

    inputs: Annotated[tuple[Column, ...], MaxLen(_MOST_COLUMNS)]
    targets: Annotated[tuple[Name, ...], MaxLen(_MOST_COLUMNS)]
    kind: Kind
    classes: Annotated[tuple[Name, ...], MaxLen(_MOST_COLUMNS)]
    missing: Missing = "error"
    unknown: Unknown = "error"

    @property
    def width(self) -> int:
        return sum(column.width for column in self.inputs)

    @property
    def standardised(self) -> list[bool]:
        """For each channel, whether ``normalize: measured`` applies to it."""
        return [column.standardised for column in self.inputs for _ in range(column.width)]

    @property
    def offsets(self) -> list[float]:
        """What each channel of a sample lacks of the value in the file."""
        return [column.offset for column in self.inputs for _ in range(column.width)]

    def inputs_of(self, rows: Rows) -> NDArray[np.float32]:
        """(M, C, 1, 1) of rows that each get an answer, not ``filled``. Raises DatasetError."""
        check_names(rows, [column.name for column in self.inputs])
        rule: Missing = "error" if self.missing == "drop" else self.missing
        values, _ = encoded(rows, self.inputs, rule, self.unknown)
        return values.reshape(-1, self.width, 1, 1)

    def unsettled(self) -> Columns:
        """Without the means: what the columns of networks that take the same rows have alike."""
        return replace(self, inputs=tuple(replace(each, mean=()) for each in self.inputs))

    def settled(self, data: ImageSet, train: NDArray[np.int32]) -> Columns:
        """With the means of the samples ``train`` of ``data``, unless they are known already.

        Raises DatasetError for a column without a value there, and for a category that only other
        samples have, unless ``unknown`` takes it for none.
        """
        if all(each.mean for each in self.inputs):
            return self
        values, inputs, at = data.images[:, :, 0, 0], [], 0
        for column in self.inputs:
            own = values[:, at : at + column.width]
            known = own[train][~np.isnan(own[train, 0])].astype(np.float64)
            if not len(known):
                raise DatasetError(
                    f"{data.name}: no row that is trained on has a value in column "
                    f"'{column.name}'; leave it out of inputs"
                )
            mean = known.mean(0)
            if column.categories and self.unknown == "error":
                for row, lost in np.argwhere((own > 0) & (mean == 0)).tolist():
                    raise DatasetError(
                        f"{data.sources[row]}, column '{column.name}': no row that is trained on "
                        f"has '{column.categories[lost]}'; set unknown: zeros beside 'train' in "
                        "the config, or leave such rows out"
                    )
            inputs.append(replace(column, mean=tuple((mean + column.offset).tolist())))
            at += column.width
        return replace(self, inputs=tuple(inputs))

    def filled(self, values: NDArray[Any]) -> NDArray[Any]:
        """Samples (M, C, 1, 1) as they are trained on: the means in gaps, and categories that no
        row trained on has as none."""
        means = np.array([each for column in self.inputs for each in column.mean])
        categories = [bool(column.categories) for column in self.inputs for _ in column.mean]
        gaps = np.isnan(values) & (self.missing == "mean")
        lost = (means == 0) & categories
        if not (gaps.any() or values[:, lost].any()):
            return values
        fill = (means - self.offsets).astype(np.float32)[:, None, None]
        found = np.where(gaps, fill, values)
        found[:, lost] = 0
        found.setflags(write=False)
        return found


def natural(text: str) -> tuple[tuple[bool, float, str], ...]:
    """A key that sorts texts with numbers in them by the numbers' values."""
    value = number(text, False)
    if value is not None:
        return ((False, value, text),)
    parts = re.split(r"([0-9]{1,300})", text)
    return tuple((True, float(p) if at % 2 else -1.0, p) for at, p in enumerate(parts))


def number(text: str, comma: bool) -> float | None:
    """The finite number that a cell is, or None. comma: it may have a decimal comma."""
    if comma and "," in text and "." not in text:
        text = text.replace(",", ".", 1)
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def is_missing(cell: str) -> bool:
    return cell.lower() in _NOTHING


def numbers(rows: Rows, name: str) -> NDArray[np.float64]:
    """(M,), NaN for a missing one. Raises DatasetError that names the first cell that is none."""
    return _each(rows, name, lambda cell: number(cell, rows.comma), "a number")


def answers(rows: Rows, name: str) -> NDArray[np.float64]:
    """(M,), 1 for yes and 0 for no, NaN for a missing one."""
    return _each(rows, name, _answer, "an answer, such as yes or no, true or false, 1 or 0")


def _answer(cell: str) -> float | None:
    return 1.0 if cell.lower() in YES else 0.0 if cell.lower() in NO else None


def _each(
    rows: Rows, name: str, value: Callable[[str], float | None], what: str
) -> NDArray[np.float64]:
    found = np.full(len(rows), np.nan)
    for row, cell in enumerate(rows.column(name)):
        if is_missing(cell):
            continue
        if (each := value(cell)) is None:
            raise DatasetError(f"{rows.at(row, name)}: '{cell}' is not {what}; correct it")
        if abs(each) > _LARGEST:
            raise DatasetError(f"{rows.at(row, name)}: {cell} is beyond float32; scale the column")
        found[row] = each
    return found


def check_names(rows: Rows, names: Sequence[str]) -> None:
    """Raise DatasetError if the table lacks one of these columns."""
    if missing := [name for name in dict.fromkeys(names) if name not in rows.names]:
        there = suggested(missing[0], rows.names, "it has") + f" {listed(rows.names, _NAMED)}"
        if any(number(name, rows.comma) is not None for name in rows.names):
            there = "its first line has numbers, where names of columns are needed; add such a line"
        what = listed([f"'{name}'" for name in missing], _NAMED)
        raise DatasetError(f"{rows.path}: has no column {what}; {there}")


def find_column(rows: Rows, name: str, as_category: bool) -> Column:
    """The column's type, by all rows of the file. Raises DatasetError if it has none."""
    cells = [cell for cell in rows.column(name) if not is_missing(cell)]
    if not cells:
        raise DatasetError(f"{rows.path}: column '{name}' is empty; leave it out of inputs")
    distinct = {*cells}
    if not as_category:
        count = sum(number(cell, rows.comma) is not None for cell in cells)
        if 2 * count > len(cells):
            return _of_numbers(name, numbers(rows, name))
        if all(_answer(cell) is not None for cell in distinct):
            return Column(name, "yes_no")
    if len(distinct) > MOST_CATEGORIES:
        raise DatasetError(
            f"{rows.path}: column '{name}' has {len(distinct):,} different texts, and a category "
            f"has at most {MOST_CATEGORIES}; leave it out of inputs"
        )
    return Column(name, "category", categories=tuple(sorted(distinct, key=natural)))


def _of_numbers(name: str, values: NDArray[np.float64]) -> Column:
    known = values[~np.isnan(values)]
    # First less one of them: a sum of large ones alike is not exact.
    mean = float(known[0] + (known - known[0]).mean())
    binary = bool(np.isin(known, (0.0, 1.0)).all())
    far = not binary and abs(mean) > _FAR * float(known.std())
    return Column(name, "number", offset=mean if far else 0.0, binary=binary)


def encoded(
    rows: Rows, columns: Sequence[Column], missing: Missing, unknown: Unknown
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """(M, width of all) float32, NaN in gaps, and which rows are kept, (M,): all, or those without.

    Raises DatasetError that names file, line and column.
    """
    kept = np.ones(len(rows), np.bool_)
    parts = []
    for column in columns:
        values = _values(rows, column, unknown)
        gaps = np.isnan(values[:, 0])
        if missing == "error" and gaps.any():
            raise gap(rows, int(gaps.argmax()), column.name)
        kept &= ~gaps
        parts.append((values - column.offset).astype(np.float32))
    return np.concatenate(parts, axis=1), kept | (missing == "mean")


def gap(rows: Rows, row: int, name: str) -> DatasetError:
    """The error of a missing value."""
    return DatasetError(
        f"{rows.at(row, name)}: has no value; fill it, or set missing: mean or drop beside 'train' "
        "in the config"
    )


def _values(rows: Rows, column: Column, unknown: Unknown) -> NDArray[np.float64]:
    """(M, width), NaN where there is no value."""
    name = column.name
    if column.type != "category":
        return (numbers if column.type == "number" else answers)(rows, name)[:, None]
    # A network of an ensemble may know one that another does not: ``filled`` leaves it out there.
    shares = column.mean if unknown == "error" and column.mean else (1.0,) * column.width
    pairs = enumerate(zip(column.categories, shares, strict=True))
    known = {each: place for place, (each, share) in pairs if share}
    at = placed(
        rows,
        name,
        known,
        unknown == "error"
        and f"categories of the rows trained on ({listed([*known], _NAMED)}); correct it, or set "
        "unknown: zeros beside 'train' in the config",
    )
    found = np.zeros((len(rows), column.width))
    found[at >= 0, at[at >= 0]] = 1.0
    found[at == MISSING] = np.nan
    return found


def placed(
    rows: Rows, name: str, known: Mapping[str, int], what: str | Literal[False]
) -> NDArray[np.int32]:
    """(M,), the number of each cell, or MISSING; below that of another, which is an error if
    ``what`` says what it is not one of. Raises DatasetError."""
    cells = rows.column(name)
    found = [known.get(cell, MISSING if is_missing(cell) else MISSING - 1) for cell in cells]
    if what and MISSING - 1 in found:
        row = found.index(MISSING - 1)
        raise DatasetError(
            f"{rows.at(row, name)}: '{cells[row]}' is not one of the {len(known)} {what}"
        )
    return np.array(found, np.int32)
