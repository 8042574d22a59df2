"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009), binary versions: 50,000 + 10,000 pictures, 32x32 RGB.

A record is one label byte (CIFAR-100: the coarse label, then the fine one) and 3,072 pixel bytes,
channel by channel, row by row. The files are in the folder of their archive, or in the archive
itself, which is read member by member into memory and never extracted.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from .archive import check_archive, read_members
from .cifar_files import CIFAR_10, CIFAR_100, PICTURE, Cifar, Part
from .decoded import Arrays, decoded, remembered
from .download import Downloads, Origin, obtain
from .image_set import (
    DataFile,
    DatasetInfo,
    ImageSet,
    Options,
    Source,
    Split,
    check_options,
    choice_option,
)

_LOG = logging.getLogger("dnnstack.datasets")

_AGAIN = "unpack it from the archive again, or replace the folder by the archive"


def describe(cifar: Cifar, options: Options, root: Path) -> DatasetInfo:
    """Shape, classes and the originals' counts. Raises DatasetError for a wrong option."""
    _, classes = cifar.labels[_label_byte(cifar, options)]
    return DatasetInfo(cifar.name, PICTURE, classes, cifar.count("train"), cifar.count("test"))


def load(
    cifar: Cifar, split: Split, root: Path, options: Options, downloads: Downloads
) -> ImageSet:
    """Load the split from the files in the set's folder below ``root``, or the archive beside it.

    If neither exists, the archive is downloaded. Files must have exactly the original's length, the
    archive also the original's SHA-256; other files of that length are used, with a warning. Raises
    DatasetError if a file is missing or damaged, or has a label out of range.
    """
    byte = _label_byte(cifar, options)
    if root.exists() and not root.is_dir():
        raise DatasetError(
            f"{root}: is not a folder; name the folder that contains '{cifar.folder}'"
        )
    folder, archive = root / cifar.folder, root / cifar.archive.name
    parts, sizes = cifar.parts[split], cifar.sizes(split)
    missing = [name for name in sizes if not (folder / name).is_file()]
    packed = bool(missing)
    if packed and not archive.is_file():
        origin = Origin(cifar.mirrors, (cifar.archive,))
        obtain(
            cifar.title, root, [archive.name], origin, downloads, _advice(cifar, folder, missing)
        )
    built: list[Arrays] = []

    def read() -> dict[str, str]:
        if packed:
            check_archive(archive, cifar.archive)
            files = read_members(archive, cifar.folder, sizes, cifar.total)
        else:
            files = ((name, _whole(folder / name, size)) for name, size in sizes.items())
        images = np.empty((cifar.count(split), *PICTURE), np.uint8)
        labels = np.empty(len(images), np.int32)
        starts = dict(zip(sizes, np.cumsum([0, *(part.count for part in parts)]), strict=False))
        hashes = {}
        for name, content in files:
            place = f"{archive} ({name})" if packed else str(folder / name)
            records = np.frombuffer(content, np.uint8).reshape(-1, cifar.record)
            _check_labels(cifar, records, place)
            rows = slice(starts[name], starts[name] + len(records))
            labels[rows] = records[:, byte]
            images[rows] = records[:, len(cifar.labels) :].reshape(-1, *PICTURE)
            hashes[name] = sha256_bytes(content)
        built.append((images, labels))
        return hashes

    sources = [archive] if packed else [folder / name for name in sizes]
    hashes = remembered(sources, tuple(sizes), read)

    def build() -> Arrays:
        if not built:
            read()
        return built[-1]

    odd = [part.name for part in parts if hashes[part.name] != part.sha256]
    if odd:
        _LOG.warning(
            "%s: %s not the original %s: results are not comparable",
            folder,
            f"{', '.join(odd)} {'is' if len(odd) == 1 else 'are'}",
            cifar.title,
        )
    content = " ".join([*(hashes[part.name] for part in parts), f"label byte {byte}"])
    images, labels = decoded(f"{cifar.name}-{split}", content, build)
    return ImageSet(f"{cifar.name}/{split}", images, labels, cifar.labels[byte][1])


def files(cifar: Cifar, root: Path, options: Options) -> tuple[DataFile, ...]:
    """The files in the set's folder, or the archive beside it; hashes are cached."""
    folder, archive = root / cifar.folder, root / cifar.archive.name
    if archive.is_file() and not folder.is_dir():
        return (_checked_archive(cifar, archive),)
    parts = [part for split in cifar.parts.values() for part in split]
    return tuple(_checked(folder / part.name, part, cifar.record) for part in parts)


def _checked(path: Path, part: Part, record: int) -> DataFile:
    if not path.is_file():
        return DataFile(path, "missing")

    def read() -> dict[str, str]:
        return {"sha256": sha256_bytes(_whole(path, part.count * record))}

    try:
        found = remembered([path], ("sha256",), read)["sha256"]
    except DatasetError as error:
        return DataFile(path, "damaged", str(error))
    return DataFile(path, "verified" if found == part.sha256 else "other")


def _checked_archive(cifar: Cifar, archive: Path) -> DataFile:
    def read() -> dict[str, str]:
        check_archive(archive, cifar.archive)
        return {"verified": cifar.archive.sha256}

    try:
        remembered([archive], ("verified",), read)
    except DatasetError as error:
        return DataFile(archive, "damaged", str(error))
    return DataFile(archive, "verified")


def _whole(path: Path, size: int) -> bytes:
    """The file's bytes, which must be exactly ``size``; no more are read."""
    try:
        with open(path, "rb") as file:
            content = file.read(size + 1)
            length = path.stat().st_size
    except OSError as error:
        raise DatasetError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(content) != size:
        state = "is truncated: it" if length < size else "is too long: it"
        raise DatasetError(f"{path}: {state} has {length} bytes instead of {size}; {_AGAIN}")
    return content


def _check_labels(cifar: Cifar, records: NDArray[np.uint8], place: str) -> None:
    for byte, (kind, classes) in enumerate(cifar.labels):
        worst = int(records[:, byte].argmax())
        if records[worst, byte] >= len(classes):
            raise DatasetError(
                f"{place}: {kind} {records[worst, byte]} of picture {worst} is not from 0 to "
                f"{len(classes) - 1}; is this {cifar.title}'s file? {_AGAIN[0].upper()}{_AGAIN[1:]}"
            )


def _label_byte(cifar: Cifar, options: Options) -> int:
    if len(cifar.labels) == 1:
        check_options(cifar.name, options, ())
        return 0
    check_options(cifar.name, options, ("labels",))
    words = ("coarse", "fine")
    return words.index(choice_option(cifar.name, options, "labels", "fine", words))


def _advice(cifar: Cifar, folder: Path, missing: list[str]) -> str:
    partly = f"{folder} exists, but lacks {', '.join(missing)}. " if folder.is_dir() else ""
    return partly + (
        f"Put {cifar.archive.name} there, or the folder {cifar.folder} that it unpacks to, or name "
        "the folder that contains either with --data-dir or DNNSTACK_DATA"
    )


def _source(cifar: Cifar) -> Source:
    return Source(partial(describe, cifar), partial(load, cifar), partial(files, cifar))


CIFAR10_SOURCE = _source(CIFAR_10)
CIFAR100_SOURCE = _source(CIFAR_100)
