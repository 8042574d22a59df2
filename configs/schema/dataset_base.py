"""What data sets in a config have in common, and the types of their options."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from ...common.options import is_whole
from ...common.text import nfc
from .base import Flag, NamedModel, Pair, numbers, problem


def _path(value: str) -> str:
    if not value or not value.isprintable():
        raise problem("expected a path without control characters")
    return value


Folder = Annotated[str, AfterValidator(_path)]


def sample_shape(value: Any) -> Any:
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
LAST_CLASS = 9_999


def names_of(value: Any, least: int = 2) -> Any:
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
    BeforeValidator(lambda value: names_of(value, 1)),
    WithJsonSchema(_NAMES | {"minItems": 1}),
]


def _classes(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return names_of(value)
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


Fit = Annotated[
    Literal["crop", "resize"],
    "crop: the largest central part with the right proportions; resize: the whole picture.",
]
Mode = Annotated[Literal["rgb", "grey"], "Three channels of a picture, or one."]
OnError = Annotated[
    Literal["stop", "skip"],
    "What to do if a picture cannot be read: stop, or skip it with a warning.",
]
Draft = Annotated[
    Flag,
    "Decode JPEGs that are at least twice as large as size at 1/2, 1/4 or 1/8 of their own: "
    "faster, with slightly other pixels.",
]
TestFraction = Annotated[
    float, Field(gt=0, lt=1), "Share, of each class, that is held out if test is not given."
]


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
