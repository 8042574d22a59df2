"""Data sets as a config names them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from .schema_base import Count, Named, NamedModel, problem


def _path(value: str) -> str:
    if not value or not value.isprintable():
        raise problem("expected a path without control characters")
    return value


Folder = Annotated[str, AfterValidator(_path)]


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


class Cifar10Config(DatasetConfig):
    """Photographs of 10 kinds of things, 32x32 RGB: 50,000 to train on, 10,000 to test on."""

    type: Literal["cifar10"] = "cifar10"


class Cifar100Config(DatasetConfig):
    """Photographs of 100 kinds of things, 32x32 RGB: 50,000 to train on, 10,000 to test on."""

    type: Literal["cifar100"] = "cifar100"
    labels: Literal["fine", "coarse"] = Field(
        default="fine", description="fine: 100 classes; coarse: their 20 superclasses."
    )


Dataset = Annotated[
    Annotated[
        MnistConfig | Cifar10Config | Cifar100Config | StrokesConfig,
        Field(discriminator="type"),
    ],
    Named("dataset", "mnist or strokes: {train_count: 20000}"),
]
