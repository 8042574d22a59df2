"""Data sets in MNIST's format: four IDX files of 28x28 grey pictures and their labels."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_file
from .decoded import Arrays, decoded, remembered
from .download import Downloads, Origin, RemoteFile, obtain
from .idx import read_idx
from .image_set import (
    DataFile,
    DatasetInfo,
    ImageSet,
    Options,
    Source,
    Split,
    check_options,
)

_LOG = logging.getLogger("dnnstack.datasets")

_SHAPE = (1, 28, 28)
_STEMS: dict[Split, dict[str, str]] = {
    "train": {"images": "train-images", "labels": "train-labels"},
    "test": {"images": "t10k-images", "labels": "t10k-labels"},
}
_DIMENSIONS = {"images": 3, "labels": 1}
_ADVICE = (
    "Put the four standard IDX files there (with or without .gz), or name the folder above it with "
    "--data-dir or DNNSTACK_DATA; or train without a download: "
    "dnnstack train --config digits.yaml"
)


@dataclass(frozen=True)
class IdxSet:
    """Such a data set, in a folder with its name. origin: the four standard files."""

    name: str
    title: str
    classes: tuple[str, ...]
    origin: Origin

    def remote(self, split: Split, part: str) -> RemoteFile:
        """The original of a split's images or labels."""
        name = _names(split)[part]
        return next(file for file in self.origin.files if file.name == name)

    def source(self) -> Source:
        return Source(partial(describe, self), partial(load, self), partial(files, self))


def describe(chosen: IdxSet, options: Options, root: Path) -> DatasetInfo:
    """Shape, classes and the originals' counts. Raises DatasetError for any option."""
    check_options(chosen.name, options, ())
    return DatasetInfo(chosen.name, _SHAPE, chosen.classes, 60_000, 10_000)


def load(
    chosen: IdxSet, split: Split, root: Path, options: Options, downloads: Downloads
) -> ImageSet:
    """Load the split's two files in the set's folder below ``root``, decoded once into the cache.

    If one of them is missing, all missing ones of the four are downloaded. Raises DatasetError if
    that fails, or if a file is damaged or does not fit the other. Well-formed files that are not
    the originals are used, with a warning.
    """
    check_options(chosen.name, options, ())
    folder = root / chosen.name
    if root.exists() and not root.is_dir():
        raise DatasetError(
            f"{root}: is not a folder; name the folder that contains '{chosen.name}'"
        )
    paths = _find(folder, split)
    if len(paths) < len(_STEMS[split]):
        order: tuple[Split, ...] = (split, "test" if split == "train" else "train")
        names = [n for s in order for p, n in _names(s).items() if p not in _find(folder, s)]
        obtain(chosen.title, folder, names, chosen.origin, downloads, _ADVICE)
        paths = _find(folder, split)
    built: list[Arrays] = []

    def read() -> dict[str, str]:
        images, image_hash = read_idx(paths["images"], _SHAPE[1:])
        labels, label_hash = read_idx(paths["labels"], ())
        if len(images) != len(labels):
            raise DatasetError(
                f"{paths['images']} has {len(images)} pictures, but {paths['labels']} has "
                f"{len(labels)} labels: the files do not belong together; download both again"
            )
        if labels.max() >= len(chosen.classes):
            raise DatasetError(
                f"{paths['labels']}: label {labels.max()} of picture {int(labels.argmax())} is not "
                f"from 0 to {len(chosen.classes) - 1}; download the file again"
            )
        built.append((images.reshape(-1, *_SHAPE), labels.astype(np.int32)))
        found = {"images": image_hash, "labels": label_hash}
        known = {
            part: _known_by(chosen.remote(split, part), paths[part], found[part]) for part in found
        }
        return {**found, **{f"{part} known by": digest for part, digest in known.items()}}

    fields = tuple(field for part in paths for field in (part, f"{part} known by"))
    hashes = remembered(list(paths.values()), fields, read)

    def build() -> Arrays:
        if not built:
            read()
        return built[-1]

    for part, path in paths.items():
        if hashes[f"{part} known by"] != chosen.remote(split, part).sha256:
            _LOG.warning(
                "%s is not the original %s file: results are not comparable", path, chosen.title
            )
    content = f"{hashes['images']} {hashes['labels']}"
    images, labels = decoded(f"{chosen.name}-{split}", content, build)
    return ImageSet(f"{chosen.name}/{split}", images, labels, chosen.classes)


def files(chosen: IdxSet, root: Path, options: Options) -> tuple[DataFile, ...]:
    """The four files in the set's folder, checked; hashes are cached."""
    folder = root / chosen.name
    return tuple(
        _checked(chosen.remote(split, part), folder / name, _find(folder, split).get(part), part)
        for split in _STEMS
        for part, name in _names(split).items()
    )


def _checked(original: RemoteFile, wanted: Path, path: Path | None, part: str) -> DataFile:
    if path is None:
        return DataFile(wanted, "missing")

    def read() -> dict[str, str]:
        content = read_idx(path, _SHAPE[1:] if part == "images" else ())[1]
        return {"known by": _known_by(original, path, content)}

    try:
        found = remembered([path], ("known by",), read)["known by"]
    except DatasetError as error:
        return DataFile(path, "damaged", str(error))
    return DataFile(path, "verified" if found == original.sha256 else "other")


def _known_by(original: RemoteFile, path: Path, content: str) -> str:
    """The SHA-256 to compare with the original's: of the content, else of the file."""
    return content if original.content_size is not None else sha256_file(path)


def _names(split: Split) -> dict[str, str]:
    """The standard names of the split's files."""
    return {part: f"{stem}-idx{_DIMENSIONS[part]}-ubyte.gz" for part, stem in _STEMS[split].items()}


def _find(folder: Path, split: Split) -> dict[str, Path]:
    """The split's existing files, in any of the usual spellings."""
    found: dict[str, Path] = {}
    for part, stem in _STEMS[split].items():
        spellings = (f"{stem}{joint}idx{_DIMENSIONS[part]}-ubyte" for joint in "-.")
        candidates = [folder / f"{name}{end}" for name in spellings for end in (".gz", "")]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            found[part] = path
    return found
