"""Data sets as a config names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from ...common.options import Count
from ...common.targets import Kind
from .base import Flag, Named, omitting, problem, tupled
from .csv_rows import CsvConfig
from .dataset_base import (
    LARGEST_TABLE,
    LAST_CLASS,
    ArrayFiles,
    AxesName,
    Classes,
    DatasetConfig,
    Draft,
    Fit,
    Folder,
    Mode,
    Names,
    OnError,
    PictureSize,
    Reject,
    Row,
    TestFraction,
    names_of,
    sample_shape,
)
from .declared import config_models
from .one_of import Models, already, one_of


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
        omitting("class"),
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
        Names | None, "Names of the classes, numbers or questions; default: numbers from 0."
    ] = None
    shape: Annotated[
        tuple[Count, ...] | None,
        BeforeValidator(lambda value: value and sample_shape(value)),
        "Of a sample, [C, H, W], whose values a row has in this order; default: [columns, 1, 1].",
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
                if not isinstance(each, int) or not 0 <= each <= LAST_CLASS:
                    raise problem(
                        f"expected the number of a class, 0 to {LAST_CLASS}, got {each} in row "
                        f"{row}; 'kind: numbers' takes any"
                    )
        return targets

    @field_validator("classes")
    @classmethod
    def _two_classes(cls, names: Any, info: ValidationInfo) -> Any:
        if names is not None and info.data.get("kind") in (None, "class"):
            return names_of(names)
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
    test_fraction: TestFraction = 0.2
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
    shape: Annotated[tuple[Count, ...], BeforeValidator(sample_shape), "Of a sample: [C, H, W]."]
    floats: Annotated[bool, "Whether they are numbers of float32, not bytes."] = False
    kind: Annotated[Kind, "Of the targets."] = "class"
    classes: Annotated[Names, "Names of the classes, numbers or questions."]
    axes: Annotated[AxesName | None, "Axes that the arrays were said to have."] = None
    validation: Annotated[Flag, "Whether there are arrays to validate on, too."] = None


class ImageFolderConfig(DatasetConfig):
    """Pictures of any size, with one folder per class, scaled to one size."""

    type: Literal["image_folder"] = "image_folder"
    train: Annotated[Folder, "Folder with a folder of pictures for each class."]
    validation: Annotated[
        Folder | None, "Folder of the same form, to validate on, in place of data.validation."
    ] = None
    test: Annotated[
        Folder | None, "Folder of the same form, to test on; default: pictures held out of train."
    ] = None
    test_fraction: TestFraction = 0.2
    size: Annotated[PictureSize, "Pixels of a side, or [height, width]."]
    fit: Fit = "crop"
    mode: Mode = "rgb"
    classes: Annotated[
        Classes | None,
        "Number of the classes, or their names in the order of the labels; "
        "default: the names of the folders, sorted.",
    ] = None
    on_error: OnError = "stop"
    draft: Draft = None
    reject: Reject = None


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
