"""The common interface of data sets: pictures with labels, and their description."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from .download import Downloads

Split = Literal["train", "test"]
Options = Mapping[str, object]


@dataclass(frozen=True)
class ImageSet:
    """Pictures and labels of one split.

    images: (M, C, H, W) uint8, read-only, perhaps memory-mapped; labels: (M,) int32, read-only;
    ``classes[label]`` names a label. ``name`` is dataset and split, ``mnist/test``.
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int32]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class DatasetInfo:
    """What is known before any data is read. shape: (C, H, W); an unknown count is None.

    A byte of channel c stands for the value ``byte * scale[c] + shift[c]``; without them it is a
    pixel, which stands for pixel / 255.
    """

    name: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    train_count: int | None
    test_count: int | None
    scale: tuple[float, ...] | None = None
    shift: tuple[float, ...] | None = None


FileState = Literal["verified", "other", "damaged", "missing"]


@dataclass(frozen=True)
class DataFile:
    """The state of a file of a data set; path: where it is, or where it should be.

    "verified": it has the original's SHA-256; "other": well-formed, but not the original; ``note``
    says what is wrong with a damaged one.
    """

    path: Path
    state: FileState
    note: str = ""


def _no_files(root: Path, options: Options) -> tuple[DataFile, ...]:
    return ()


@dataclass(frozen=True)
class Source:
    """A dataset: ``describe(options, root)`` reads no data, ``load(split, root, options,
    downloads)`` does; ``files(root, options)`` checks its files, if it has known ones;
    ``about`` is a clause that says where the samples come from, if it has none.
    """

    describe: Callable[[Options, Path], DatasetInfo]
    load: Callable[[Split, Path, Options, Downloads], ImageSet]
    files: Callable[[Path, Options], tuple[DataFile, ...]] = _no_files
    about: str = ""


def integer_option(
    dataset: str, options: Options, name: str, default: int, *, low: int, high: int
) -> int:
    """The integer ``options[name]`` in [low, high]; raises DatasetError for others."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise DatasetError(
            f"dataset '{dataset}', option '{name}': expects an integer from {low} to {high}, "
            f"got {value!r}"
        )
    return value


def choice_option(
    dataset: str, options: Options, name: str, default: str, words: tuple[str, ...]
) -> str:
    """The string ``options[name]``, one of ``words``; raises DatasetError for others."""
    value = options.get(name, default)
    if not isinstance(value, str) or value not in words:
        raise DatasetError(
            f"dataset '{dataset}', option '{name}': expects {' or '.join(words)}, got {value!r}"
        )
    return value


def check_options(dataset: str, options: Options, known: tuple[str, ...]) -> None:
    """Raise DatasetError for an option that the data set does not have."""
    for name in options:
        if name not in known:
            listed = f"its options are {', '.join(known)}" if known else "it has no options"
            raise DatasetError(f"dataset '{dataset}' has no option '{name}'; {listed}")
