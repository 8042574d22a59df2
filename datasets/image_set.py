"""The common interface of data sets: samples with targets, and their description."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from ..common.printable import UTF8_LOCALE, unnameable
from ..common.records import dataclass
from ..common.targets import Kind, check_targets
from .download import Downloads
from .identity import Identity, identify
from .integer_pixels import Depth
from .mapped import picked

if TYPE_CHECKING:
    from .columns import Columns

Split = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class ImageSet:
    """Samples and targets of one split.

    images: (M, C, H, W) uint8 or float32, read-only, perhaps memory-mapped; labels: (M,) int32 or
    (M, K) float32, read-only, by their ``kind``, see ``common.targets``; ``classes`` names the K
    classes, numbers or questions. ``name`` is dataset and split, ``mnist/test``. sources: where
    each sample comes from, such as the path of its file, if there is more to say than its number.
    names, contents: those of ``Identity``, if there are any; key: a text that determines pictures
    and labels, such as the hashes of their files, without which the pictures are hashed. doubts:
    what a person should know before training, such as a picture under two classes. bits: the depth
    of integer pixels of more than 8 bits in the files, None if there are none. columns: of a table
    in a file. held: (M,), the
    samples of a training set that are validation samples of its own; None if it has none.
    """

    name: str
    images: NDArray[Any]
    labels: NDArray[Any]
    classes: tuple[str, ...]
    sources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    key: str = ""
    doubts: tuple[str, ...] = ()
    bits: Depth | None = None
    kind: Kind = "class"
    columns: Columns | None = None
    held: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        for each in ("sources", "names", "contents"):
            count = len(getattr(self, each))
            if count not in (0, len(self.labels)):
                raise DatasetError(
                    f"{self.name}: has {len(self.labels)} samples, but {count} {each}"
                )
        if len(set(self.names)) < len(self.names):
            raise DatasetError(f"{self.name}: two samples have the same name")
        check_targets(self.name, self.kind, self.labels, len(self.classes), self.sources)

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self, rows: NDArray[np.int32]) -> list[float]:
        """How many of the samples at ``rows`` each class has, how many yes or which share of them;
        not for numbers."""
        labels = self.labels[rows]
        if self.kind == "class":
            return list(map(int, np.bincount(labels, minlength=len(self.classes))))
        return list(map(float, labels.sum(0, dtype=np.float64)))

    def taken(
        self, rows: NDArray[np.int32], labels: NDArray[Any], classes: tuple[str, ...]
    ) -> ImageSet:
        """The samples at ``rows``, in that order, with these labels of other ``classes``."""
        whole = np.array_equal(rows, np.arange(len(self)))
        images = self.images if whole else picked(self.images, rows, self.name)
        for array in (images, labels):
            array.setflags(write=False)
        texts: dict[str, Any] = {
            key: getattr(self, key) for key in ("sources", "names", "contents")
        }
        texts = {key: tuple(each[row] for row in rows) for key, each in texts.items() if each}
        key, held = self.key if whole else "", self.held
        texts["held"] = None if held is None else held[rows]
        return replace(self, images=images, labels=labels, classes=classes, key=key, **texts)

    @cached_property
    def identity(self) -> Identity:
        """Of these samples, found when it is first asked for."""
        key = self.key
        if not key and not self.contents:
            key = sha256_bytes(np.ascontiguousarray(self.images).data.cast("B"))
        labels = self.labels
        if self.kind != "class":
            key += sha256_bytes(np.ascontiguousarray(labels, "<f4").tobytes())
            labels = np.zeros(len(self), np.int32)
        return identify(self.classes, labels, self.names, self.contents, key)


@dataclass(frozen=True)
class DatasetInfo:
    """What is known before any data is read. shape: (C, H, W); an unknown count is None.

    A byte of channel c stands for the value ``byte * scale[c] + shift[c]``; without them it is a
    pixel, which stands for pixel / 255. ``floats``: samples are float32 and stand for themselves.
    ``kind``: of the targets, whose names ``classes`` are. ``left_out``: folders that are no class,
    as they contain only hidden files. ``validation_count``: of validation samples of its own.
    """

    name: str
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    train_count: int | None
    test_count: int | None
    scale: tuple[float, ...] | None = None
    shift: tuple[float, ...] | None = None
    left_out: tuple[str, ...] = ()
    floats: bool = False
    kind: Kind = "class"
    validation_count: int | None = None


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


@dataclass(frozen=True)
class Dataset:
    """A data set: its facts and, as fields with defaults, its options, which a config sets.

    ``about``: a clause that says where the samples come from, if there are no known files. With an
    option ``validation`` that is not None, ``load`` knows the split of that name.
    """

    about: ClassVar[str] = ""

    def describe(self, root: Path) -> DatasetInfo:
        """What is known before any data is read; root: the data folder."""
        raise NotImplementedError

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The pictures of a split; missing files are downloaded."""
        raise NotImplementedError

    def files(self, root: Path) -> tuple[DataFile, ...]:
        """The known files, checked; nothing is downloaded."""
        return ()


def check_root(root: Path, name: str) -> None:
    """Raise DatasetError if the data folder, in which ``name`` should be, is something else."""
    if root.exists() and not root.is_dir():
        raise DatasetError(f"{root}: is not a folder; name the folder that contains '{name}'")


def own_file(key: str, name: str, root: Path, what: str = "file") -> Path:
    """The file or folder that the key names. Raises DatasetError if it is not there."""
    own = Path(name).expanduser()
    if (path := root / own).exists():
        return path
    place = f"data.dataset.{key}: there is no {what} '{name}'"
    if unnameable(name):
        raise DatasetError(
            f"{place}, because the encoding of this locale, {sys.getfilesystemencoding()}, lacks "
            f"characters of its name; {UTF8_LOCALE}"
        )
    if own.is_absolute():
        raise DatasetError(f"{place}; if the samples were moved, write where they are now")
    raise DatasetError(
        f"{place}. If the samples were moved, write where they are now, or name the folder in "
        "which they are with --data-dir. A relative path counts from the folder of the config or, "
        f"if it is not there, from the data folder, which is {root}"
    )


def unreadable(path: Path, error: OSError) -> DatasetError:
    """The error of a file or folder that the system does not let us read."""
    return DatasetError(f"{path}: cannot be read ({error.strerror or error})")
