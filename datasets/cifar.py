"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), binary versions: 50,000 + 10,000 pictures, 32x32 RGB.

A record is one label byte (CIFAR-100: the coarse label, then the fine one) and 3,072 pixel bytes,
channel by channel, row by row. The files are in the folder of their archive, or in the archive
itself, which is read member by member into memory and never extracted.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError, explaining
from ..common.files import sha256_bytes
from ..common.records import dataclass
from .archive import check_archive, read_members
from .decoded import Arrays, checked, decoded, read_once
from .download import Downloads, Origin, RemoteFile, obtain
from .image_set import DataFile, Dataset, DatasetInfo, ImageSet, Split, check_root
from .single_pictures import single_pictures

_LOG = logging.getLogger("dnnstack.datasets")

_AGAIN = "unpack it from the archive again, or replace the folder by the archive"
_PICTURE = (3, 32, 32)


@dataclass(frozen=True)
class Part:
    """A file of the set with its number of records; sha256 is the original's."""

    name: str
    count: int
    sha256: str


@dataclass(frozen=True)
class Cifar(Dataset):
    """One of the two sets. label_bytes: for each label byte of a record, its name and classes."""

    name: str
    title: str
    folder: str
    archive: RemoteFile
    parts: dict[Split, tuple[Part, ...]]
    label_bytes: tuple[tuple[str, tuple[str, ...]], ...]
    mirrors: tuple[str, ...]

    @property
    def record(self) -> int:
        """Bytes of a picture with its labels."""
        return len(self.label_bytes) + math.prod(_PICTURE)

    @property
    def label_byte(self) -> int:
        """The byte of a record that is its label."""
        return 0

    def count(self, split: Split) -> int:
        return sum(part.count for part in self.parts[split])

    def sizes(self, split: Split) -> dict[str, int]:
        """The files of the split with their lengths."""
        return {part.name: part.count * self.record for part in self.parts[split]}

    def describe(self, root: Path) -> DatasetInfo:
        """Shape, classes and the originals' counts."""
        _, classes = self.label_bytes[self.label_byte]
        train, test = self.count("train"), self.count("test")
        return DatasetInfo(self.name, _PICTURE, classes, train, test)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """Load the split from the set's folder below ``root``, or the archive beside it.

        If neither exists, the archive is downloaded. Files must have exactly the original's length,
        the archive also the original's SHA-256; other files of that length are used, with a
        warning. Raises DatasetError if a file is missing or damaged, or has a label out of range.
        """
        check_root(root, self.folder)
        folder, archive = root / self.folder, root / self.archive.name
        parts, sizes, byte = self.parts[split], self.sizes(split), self.label_byte
        missing = [name for name in sizes if not (folder / name).is_file()]
        if missing and not archive.is_file():
            origin, advice = Origin(self.mirrors, (self.archive,)), self._advice(folder, missing)
            obtain(self.title, root, [archive.name], origin, downloads, advice)

        def read() -> tuple[dict[str, str], Arrays]:
            if missing:
                files = read_members(archive, self.archive, self.folder, sizes)
            else:
                files = ((name, _whole(folder / name, size)) for name, size in sizes.items())
            ends = dict(zip(sizes, np.cumsum([part.count for part in parts]), strict=True))
            images = np.empty((self.count(split), *_PICTURE), np.uint8)
            labels = np.empty(len(images), np.int32)
            hashes = {}
            for name, content in files:
                records = np.frombuffer(content, np.uint8).reshape(-1, self.record)
                self._check_labels(records, f"{archive} ({name})" if missing else folder / name)
                rows = slice(ends[name] - len(records), ends[name])
                labels[rows] = records[:, byte]
                images[rows] = records[:, len(self.label_bytes) :].reshape(-1, *_PICTURE)
                hashes[name] = sha256_bytes(content)
            return hashes, (images, labels)

        sources = [archive] if missing else [folder / name for name in sizes]
        hashes, build = read_once(sources, tuple(sizes), read)
        odd = [part.name for part in parts if hashes[part.name] != part.sha256]
        if odd:
            _LOG.warning(
                "%s: %s not the original %s: results are not comparable",
                folder,
                f"{', '.join(odd)} {'is' if len(odd) == 1 else 'are'}",
                self.title,
            )
        content = " ".join([*(hashes[part.name] for part in parts), f"label byte {byte}"])
        images, labels = decoded(f"{self.name}-{split}", content, build)
        classes = self.label_bytes[byte][1]
        return ImageSet(f"{self.name}/{split}", images, labels, classes, key=content)

    def files(self, root: Path) -> tuple[DataFile, ...]:
        """The files in the set's folder, or the archive beside it; hashes are cached."""
        folder, archive = root / self.folder, root / self.archive.name
        if archive.is_file() and not folder.is_dir():
            whole = partial(check_archive, archive, self.archive)
            return (checked(archive, self.archive.sha256, whole),)
        return tuple(
            checked(folder / part.name, part.sha256, partial(self._hash, folder, part))
            for parts in self.parts.values()
            for part in parts
        )

    def _hash(self, folder: Path, part: Part) -> str:
        return sha256_bytes(_whole(folder / part.name, part.count * self.record))

    def _check_labels(self, records: NDArray[np.uint8], place: Path | str) -> None:
        for byte, (kind, classes) in enumerate(self.label_bytes):
            worst = int(records[:, byte].argmax())
            if records[worst, byte] >= len(classes):
                raise DatasetError(
                    f"{place}: {kind} {records[worst, byte]} of picture {worst} is not from 0 to "
                    f"{len(classes) - 1}; is this {self.title}'s file? "
                    f"{_AGAIN[0].upper()}{_AGAIN[1:]}"
                )

    def _advice(self, folder: Path, missing: list[str]) -> str:
        partly = f"{folder} exists, but lacks {', '.join(missing)}. " if folder.is_dir() else ""
        wanted = (
            f"Put {self.archive.name} there, or the folder {self.folder} that it unpacks to, or "
            "name the folder that contains either with --data-dir or DNNSTACK_DATA"
        )
        _, classes = self.label_bytes[self.label_byte]
        other = single_pictures(folder.parent / self.name, classes)
        there = "" if other is None else f". {other}; {other.advice(self.name, _PICTURE[-1])}"
        return f"{partly}{wanted}{there}"


@dataclass(frozen=True)
class Cifar100(Cifar):
    """labels: ``fine`` for the 100 classes, ``coarse`` for their 20 superclasses."""

    labels: Literal["coarse", "fine"] = "fine"

    @property
    def label_byte(self) -> int:
        return ("coarse", "fine").index(self.labels)


def _whole(path: Path, size: int) -> bytes:
    """The file's bytes, which must be exactly ``size``; no more are read."""
    with explaining(path, "cannot be read", "", DatasetError), open(path, "rb") as file:
        content = file.read(size + 1)
        length = path.stat().st_size
    if len(content) != size:
        state = "is truncated: it" if length < size else "is too long: it"
        raise DatasetError(f"{path}: {state} has {length} bytes instead of {size}; {_AGAIN}")
    return content
