"""Data sets as a config names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from ...common.options import Count, is_whole
from ...common.targets import Kind
from ...common.text import nfc
from .base import Flag, Named, NamedModel, Pair, numbers, problem, tupled
from .declared import config_models
from .one_of import Models, already, one_of


def _path(value: str) -> str:
    if not value or not value.isprintable():
        raise problem("expected a path without control characters")
    return value


Folder = Annotated[str, AfterValidator(_path)]


def _sample_shape(value: Any) -> Any:
    if not isinstance(value, (list, tuple)) or len(value) != 3:
        raise problem("expected three numbers, [C, H, W]")
    return tuple(value)


def _array_files(value: Any) -> Any:
    files = [value] if isinstance(value, str) else value
    many = isinstance(files, (list, tuple)) and all(isinstance(each, str) for each in files)
    if not many or len(files) != 2 - isinstance(value, str):
        raise problem("expected an .npz file, or two .npy files: [inputs.npy, targets.npy]")
    checked = tuple(map(_path, files))
    return checked if checked[1:] else checked[0]


ArrayFiles = Annotated[str | tuple[str, str], BeforeValidator(_array_files)]
"""An ``.npz`` file, or two ``.npy`` files, of inputs and of targets."""
AxesName = Literal["NC", "NHW", "NCL", "NLC", "NCHW", "NHWC"]


Row = Annotated[
    tuple[int | float, ...],
    BeforeValidator(lambda row: numbers(row, "a list of numbers, none beyond 1e6")),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number"},
                {"type": "array", "items": {"type": "number"}, "minItems": 1},
            ]
        }
    ),
]
"""The values of a sample; a number alone is a row of one."""
LARGEST_TABLE = 10_000
_LAST_CLASS = 9_999


def _names(value: Any, least: int = 2) -> Any:
    names = tuple(value) if isinstance(value, (list, tuple)) else ()
    if len(names) < least or not all(isinstance(n, str) and n and n.isprintable() for n in names):
        count = "at least two names" if least > 1 else "names"
        raise problem(f"expected a list of {count} without control characters")
    if len(set(map(nfc, names))) < len(names):
        raise problem("expected each name once, in one Unicode form")
    return names


_NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 2}
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: _names(value, 1)),
    WithJsonSchema(_NAMES | {"minItems": 1}),
]
ClassNames = Annotated[tuple[str, ...], BeforeValidator(_names), WithJsonSchema(_NAMES)]


def _classes(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return _names(value)
    if not is_whole(value) or not 2 <= value <= 100_000:
        raise problem("expected a number from 2 to 100000, or a list of the folders' names")
    return value


Classes = Annotated[
    int | tuple[str, ...],
    BeforeValidator(_classes),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 2, "maximum": 100_000}, _NAMES]}),
]
"""The number of classes, or their names in the order of their labels."""


LARGEST_SIDE = 4096


def _picture_size(value: tuple[int, int]) -> tuple[int, int]:
    if max(value) > LARGEST_SIDE:
        raise problem(f"expected at most {LARGEST_SIDE} pixels")
    return value


PictureSize = Annotated[Pair, AfterValidator(_picture_size)]


class DatasetConfig(NamedModel):
    noun: ClassVar[str] = "dataset"
    type: str

    @property
    def files(self) -> dict[str, tuple[str, ...]]:
        """The files and folders that it names for each split."""
        options = {split: getattr(self, split, None) for split in ("train", "validation", "test")}
        found = {key: each if isinstance(each, tuple) else (each,) for key, each in options.items()}
        return {key: each for key, each in found.items() if all(isinstance(f, str) for f in each)}

    @property
    def measured(self) -> bool:
        """Whether ``normalize: measured`` is the default."""
        return False

    @property
    def own_validation(self) -> str:
        """The key of validation samples that it brings, its option ``validation``; else ""."""
        given = getattr(self, "validation", None) is not None
        return f"data.dataset.{self.type}.validation" if given else ""


class MnistConfig(DatasetConfig):
    """Handwritten digits, 28x28 grey: 60,000 to train on, 10,000 to test on."""

    type: Literal["mnist"] = "mnist"


class StrokesConfig(DatasetConfig):
    """Digits drawn by the program in MNIST's format; needs no download."""

    type: Literal["strokes"] = "strokes"
    train_count: Annotated[Count, "Pictures to train on."] = 60_000
    test_count: Annotated[Count, "Pictures to test on."] = 10_000


class SeriesConfig(DatasetConfig):
    """Sequences that the program draws, like beats of an electrocardiogram, of 3 classes."""

    type: Literal["series"] = "series"
    train_count: Annotated[Count, "Sequences to train on."] = 6_000
    test_count: Annotated[Count, "Sequences to test on."] = 2_000


class FashionMnistConfig(DatasetConfig):
    """Pictures of clothes, 28x28 grey: 60,000 to train on, 10,000 to test on."""

    type: Literal["fashion_mnist"] = "fashion_mnist"


class Cifar10Config(DatasetConfig):
    """Photographs of 10 kinds of things, 32x32 RGB: 50,000 to train on, 10,000 to test on."""

    type: Literal["cifar10"] = "cifar10"


class Cifar100Config(DatasetConfig):
    """Photographs of 100 kinds of things, 32x32 RGB: 50,000 to train on, 10,000 to test on."""

    type: Literal["cifar100"] = "cifar100"
    labels: Annotated[
        Literal["fine", "coarse"], "fine: 100 classes; coarse: their 20 superclasses."
    ] = "fine"


class TableConfig(DatasetConfig):
    """Samples written in the config, such as a truth table: both training set and test set."""

    type: Literal["table"] = "table"
    inputs: Annotated[
        tuple[Row, ...],
        Field(min_length=1),
        BeforeValidator(tupled),
        "One row per sample, with its values as written.",
    ]
    kind: Annotated[
        Kind | None,
        "Of the targets. numbers: one or many; yes_no: 0 or 1 for each of some questions; "
        "distribution: the shares of classes, which add up to 1; default: class.",
    ] = None
    targets: Annotated[
        tuple[int | float | Row, ...],
        Field(min_length=1),
        BeforeValidator(tupled),
        "The class of each row, from 0, or what else its kind says: a number, or a list of them.",
    ]
    classes: Annotated[
        Names | None,
        "Names of the classes, numbers or questions; default: numbers from 0.",
    ] = None

    @field_validator("inputs")
    @classmethod
    def _even(cls, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        if len(rows) > LARGEST_TABLE:
            raise problem(f"expected at most {LARGEST_TABLE} rows")
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise problem(
                    f"expected rows of the same length: the first has {len(rows[0])} values, "
                    f"row {number + 1} has {len(row)}"
                )
        return rows

    @field_validator("targets")
    @classmethod
    def _one_a_row(cls, targets: tuple[Any, ...], info: ValidationInfo) -> tuple[Any, ...]:
        rows = len(info.data.get("inputs", targets))
        if len(targets) != rows:
            raise problem(
                f"expected one target for each row of inputs ({rows}), got {len(targets)}"
            )
        if info.data.get("kind") in (None, "class"):
            for row, each in enumerate(targets, 1):
                if not isinstance(each, int) or not 0 <= each <= _LAST_CLASS:
                    raise problem(
                        f"expected the number of a class, 0 to {_LAST_CLASS}, got {each} in row "
                        f"{row}; 'kind: numbers' takes any"
                    )
        return targets

    @field_validator("classes")
    @classmethod
    def _two_classes(cls, names: Any, info: ValidationInfo) -> Any:
        if names is not None and info.data.get("kind") in (None, "class"):
            return _names(names)
        return names


class NpzConfig(DatasetConfig):
    """Arrays of NumPy's, in .npz files, or in pairs of .npy files: [inputs.npy, targets.npy]."""

    type: Literal["npz"] = "npz"
    train: Annotated[ArrayFiles, "The file or the two files to train on."]
    validation: Annotated[
        ArrayFiles | None, "Such files to validate on, in place of data.validation."
    ] = None
    test: Annotated[
        ArrayFiles | None,
        "Such files to test on; default: x_test and y_test in train, else samples held out of it.",
    ] = None
    test_fraction: Annotated[float, Field(gt=0, lt=1), "Share that is held out."] = 0.2
    inputs: Annotated[str, "Name of the inputs in .npz files; x is x_train and so on, too."] = "x"
    targets: Annotated[str, "Name of the targets."] = "y"
    axes: Annotated[
        AxesName | None,
        "Axes of the inputs: samples, channels or columns, height, width, length; default: found "
        "where only one is meant.",
    ] = None
    kind: Annotated[
        Kind | None,
        "Of the targets; default: integers and texts are classes, floats numbers, bools yes_no.",
    ] = None
    classes: Annotated[Names | None, "Names of the classes, numbers or questions."] = None


class ArraysConfig(DatasetConfig):
    """Arrays that a program gives to dnnstack.train, which writes this."""

    type: Literal["arrays"] = "arrays"
    shape: Annotated[tuple[Count, ...], BeforeValidator(_sample_shape), "Of a sample: [C, H, W]."]
    floats: Annotated[bool, "Whether they are numbers of float32, not bytes."] = False
    kind: Annotated[Kind, "Of the targets."] = "class"
    classes: Annotated[Names, "Names of the classes, numbers or questions."]
    axes: Annotated[AxesName | None, "Axes that the arrays were said to have."] = None
    validation: Annotated[Flag, "Whether there are arrays to validate on, too."] = None


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
    test_fraction: Annotated[
        float, Field(gt=0, lt=1), "Share of the rows that is held out if test is not given."
    ] = 0.2
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
    fit: Annotated[
        Literal["crop", "resize"],
        "crop: the largest central part with the right proportions; resize: the whole picture.",
    ] = "crop"
    mode: Annotated[Literal["rgb", "grey"], "Three channels of a picture, or one."] = "rgb"

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


class ImageFolderConfig(DatasetConfig):
    """Pictures of any size, with one folder per class, scaled to one size."""

    type: Literal["image_folder"] = "image_folder"
    train: Annotated[Folder, "Folder with a folder of pictures for each class."]
    validation: Annotated[
        Folder | None,
        "Folder of the same form, to validate on, in place of data.validation.",
    ] = None
    test: Annotated[
        Folder | None, "Folder of the same form, to test on; default: pictures held out of train."
    ] = None
    test_fraction: Annotated[
        float, Field(gt=0, lt=1), "Share of each class that is held out if test is not given."
    ] = 0.2
    size: Annotated[PictureSize, "Pixels of a side, or [height, width]."]
    fit: Annotated[
        Literal["crop", "resize"],
        "crop: the largest central part with the right proportions; resize: the whole picture.",
    ] = "crop"
    mode: Annotated[Literal["rgb", "grey"], "Three channels or one."] = "rgb"
    classes: Annotated[
        Classes | None,
        "Number of the classes, or their names in the order of the labels; "
        "default: the names of the folders, sorted.",
    ] = None
    on_error: Annotated[
        Literal["stop", "skip"],
        "What to do if a picture cannot be read: stop, or skip it with a warning.",
    ] = "stop"
    draft: Annotated[
        Flag,
        "Decode JPEGs that are at least twice as large as size at 1/2, 1/4 or 1/8 of their own: "
        "faster, with slightly other pixels.",
    ] = None


_MODELS: Models[DatasetConfig] = already(
    MnistConfig,
    FashionMnistConfig,
    Cifar10Config,
    Cifar100Config,
    StrokesConfig,
    SeriesConfig,
    TableConfig,
    NpzConfig,
    ArraysConfig,
    CsvConfig,
    ImageFolderConfig,
)


def dataset_type(kinds: Mapping[str, type]) -> Any:
    """The type of a data set in a config: one of those known before, or one of these kinds."""
    global _MODELS
    _MODELS = _MODELS.with_others(config_models(kinds, DatasetConfig))
    return one_of(_MODELS, Named("dataset", "mnist or strokes: {train_count: 20000}"))


if TYPE_CHECKING:
    Dataset = DatasetConfig
else:
    Dataset = dataset_type({})
