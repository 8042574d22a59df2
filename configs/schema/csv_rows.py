"""Files of rows as a config names them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from ...common.targets import Kind
from .base import problem
from .dataset_base import (
    DatasetConfig,
    Draft,
    Fit,
    Folder,
    Mode,
    OnError,
    PictureSize,
    TestFraction,
)


def _column_names(value: Any) -> Any:
    names = (value,) if isinstance(value, str) else value
    names = tuple(names) if isinstance(names, (list, tuple)) else ()
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise problem("expected the name of a column, or a list of them")
    if len({*names}) < len(names):
        raise problem("expected each column once")
    return tuple(name.strip() for name in names)


_COLUMN = {"type": "string", "minLength": 1}
ColumnNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_column_names),
    WithJsonSchema({"anyOf": [_COLUMN, {"type": "array", "items": _COLUMN, "minItems": 1}]}),
]


class CsvConfig(DatasetConfig):
    """Rows of a CSV or TSV file, plain or of gzip: numbers and categories, and their targets."""

    type: Literal["csv"] = "csv"
    train: Annotated[Folder, "File of rows to train on; its first line names the columns."]
    validation: Annotated[
        Folder | None, "File of the same form, to validate on, in place of data.validation."
    ] = None
    test: Annotated[
        Folder | None, "File of the same form, to test on; default: rows held out of train."
    ] = None
    test_fraction: TestFraction = 0.2
    kind: Annotated[
        Kind | None,
        "Of the targets. numbers: one or many; yes_no: yes or no, true or false, 1 or 0, for each "
        "column; distribution: the shares of classes, which add up to 1; default: class.",
    ] = None
    targets: Annotated[ColumnNames, "Column of the class, or the columns that the kind needs."]
    inputs: Annotated[
        ColumnNames | None, "Columns to learn from; default: all but the targets."
    ] = None
    categories: Annotated[
        ColumnNames | None, "Columns whose numbers are names, such as postal codes."
    ] = None
    missing: Annotated[
        Literal["error", "mean", "drop"],
        "What to do with a row that lacks a value: stop, use the mean of the rows to train on, or "
        "leave the row out.",
    ] = "error"
    unknown: Annotated[
        Literal["error", "zeros"],
        "What to do with a category that no row to train on has: stop, or take it for none.",
    ] = "error"
    separator: Annotated[
        Literal["comma", "semicolon", "tab", "bar"] | None,
        "What divides the columns; default: as the first lines have it. With semicolons, numbers "
        "may have decimal commas.",
    ] = None
    encoding: Annotated[
        Literal["utf-8", "utf-16", "latin-1"] | None,
        "Of the file; default: utf-8, or utf-16 if the file begins with its mark.",
    ] = None
    picture: Annotated[
        str | None,
        "Column with the path of a picture, counted from the table's folder, in place of inputs.",
    ] = None
    size: Annotated[
        PictureSize | None,
        Field(validate_default=True),
        "Of the pictures: pixels of a side, or [height, width].",
    ] = None
    fit: Fit = "crop"
    mode: Mode = "rgb"
    on_error: OnError = "stop"
    draft: Draft = None

    @property
    def measured(self) -> bool:
        return self.picture is None

    @field_validator("picture")
    @classmethod
    def _alone(cls, picture: str | None, info: ValidationInfo) -> str | None:
        if picture is not None and (info.data.get("inputs") or info.data.get("categories")):
            raise problem("a network learns from pictures alone; remove inputs and categories")
        return picture

    @field_validator("size")
    @classmethod
    def _of_pictures(cls, size: Any, info: ValidationInfo) -> Any:
        if (size is None) != (info.data.get("picture") is None):
            raise problem("expected with 'picture', and only with it: the pixels of a side")
        return size

    @field_validator("targets")
    @classmethod
    def _one_class(cls, targets: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        kind = info.data.get("kind")
        if len(targets) > 1 and kind in (None, "class"):
            raise problem("expected one column for a class; other kinds take several")
        if len(targets) == 1 and kind == "distribution":
            raise problem("expected a column for each class, at least two")
        return targets

    @field_validator("inputs")
    @classmethod
    def _no_target(cls, inputs: Any, info: ValidationInfo) -> Any:
        if both := {*(inputs or ())} & {*info.data.get("targets", ())}:
            raise problem(f"'{min(both)}' is a target; it cannot be an input, too")
        return inputs
