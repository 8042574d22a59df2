"""Data sets as a config names them."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from .schema_base import Count, Named, NamedModel, is_number, problem, tupled


def _path(value: str) -> str:
    if not value or not value.isprintable():
        raise problem("expected a path without control characters")
    return value


Folder = Annotated[str, AfterValidator(_path)]


def _class_name(value: str) -> str:
    if not value or not value.isprintable() or len(value) > 255:
        raise problem("expected a name without control characters")
    return value


def _row(value: Any) -> Any:
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or not all(is_number(v) and abs(v) <= 1e6 for v in values):
        raise problem("expected a list of numbers, none beyond 1e6")
    return tuple(values)


Row = Annotated[
    tuple[int | float, ...],
    BeforeValidator(_row),
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 1}),
]
"""The values of a sample."""
LARGEST_TABLE = 10_000
ClassNames = Annotated[
    tuple[Annotated[str, AfterValidator(_class_name)], ...],
    Field(min_length=2, max_length=10_000),
    BeforeValidator(tupled),
]


class DatasetConfig(NamedModel):
    kind: ClassVar[str] = "dataset"


class MnistConfig(DatasetConfig):
    """Handwritten digits, 28x28 grey: 60,000 to train on, 10,000 to test on."""

    type: Literal["mnist"] = "mnist"


class StrokesConfig(DatasetConfig):
    """Digits drawn by the program in MNIST's format; needs no download."""

    type: Literal["strokes"] = "strokes"
    train_count: Count = Field(default=60_000, description="Pictures to train on.")
    test_count: Count = Field(default=10_000, description="Pictures to test on.")


class FashionMnistConfig(DatasetConfig):
    """Pictures of clothes, 28x28 grey: 60,000 to train on, 10,000 to test on."""

    type: Literal["fashion_mnist"] = "fashion_mnist"


class Cifar10Config(DatasetConfig):
    """Photographs of 10 kinds of things, 32x32 RGB: 50,000 to train on, 10,000 to test on."""

    type: Literal["cifar10"] = "cifar10"


class Cifar100Config(DatasetConfig):
    """Photographs of 100 kinds of things, 32x32 RGB: 50,000 to train on, 10,000 to test on."""

    type: Literal["cifar100"] = "cifar100"
    labels: Literal["fine", "coarse"] = Field(
        default="fine", description="fine: 100 classes; coarse: their 20 superclasses."
    )


class TableConfig(DatasetConfig):
    """Samples written here, such as a truth table: both what is trained on and the test set."""

    type: Literal["table"] = "table"
    inputs: Annotated[
        tuple[Row, ...], Field(min_length=1, max_length=LARGEST_TABLE), BeforeValidator(tupled)
    ] = Field(description="One row a sample: its values, taken as they are.")
    targets: Annotated[
        tuple[Annotated[int, Field(ge=0, le=9999)], ...],
        Field(min_length=1),
        BeforeValidator(tupled),
    ] = Field(description="The class of each row, from 0.")
    classes: ClassNames | None = Field(
        default=None, description="Names of the classes; default: their numbers."
    )

    @field_validator("inputs")
    @classmethod
    def _even(cls, rows: tuple[Row, ...]) -> tuple[Row, ...]:
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise problem(
                    f"expected rows of the same length: the first has {len(rows[0])} values, "
                    f"row {number + 1} has {len(row)}"
                )
        return rows

    @field_validator("targets")
    @classmethod
    def _one_a_row(cls, targets: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        rows = len(info.data.get("inputs", targets))
        if len(targets) != rows:
            raise problem(
                f"expected one target for each row of inputs ({rows}), got {len(targets)}"
            )
        return targets


Dataset = Annotated[
    Annotated[
        MnistConfig
        | FashionMnistConfig
        | Cifar10Config
        | Cifar100Config
        | StrokesConfig
        | TableConfig,
        Field(discriminator="type"),
    ],
    Named("dataset", "mnist or strokes: {train_count: 20000}"),
]
