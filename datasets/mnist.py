"""MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 handwritten digits, 28x28, from four IDX files."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
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
_CLASSES = tuple("0123456789")
_STEMS: dict[Split, dict[str, str]] = {
    "train": {"images": "train-images", "labels": "train-labels"},
    "test": {"images": "t10k-images", "labels": "t10k-labels"},
}
_DIMENSIONS = {"images": 3, "labels": 1}
# SHA-256 and length of the decompressed originals: what a mirror's gzip made of them may differ.
_ORIGIN = Origin(
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://yann.lecun.com/exdb/mnist/",
    ),
    files=(
        RemoteFile(
            "train-images-idx3-ubyte.gz",
            9_912_422,
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            47_040_016,
        ),
        RemoteFile(
            "train-labels-idx1-ubyte.gz",
            28_881,
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            60_008,
        ),
        RemoteFile(
            "t10k-images-idx3-ubyte.gz",
            1_648_877,
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            7_840_016,
        ),
        RemoteFile(
            "t10k-labels-idx1-ubyte.gz",
            4_542,
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            10_008,
        ),
    ),
)
_ORIGINALS = {file.name: file.sha256 for file in _ORIGIN.files}
_ADVICE = (
    "Put the four standard IDX files there (with or without .gz), or name the folder above it with "
    "--data-dir or DNNSTACK_DATA; or train without any download: "
    "dnnstack train --config digits.yaml"
)


def describe(options: Options) -> DatasetInfo:
    """Shape, classes and the originals' counts. Raises DatasetError for any option."""
    check_options("mnist", options, ())
    return DatasetInfo("mnist", _SHAPE, _CLASSES, 60_000, 10_000)


def load(split: Split, root: Path, options: Options, downloads: Downloads) -> ImageSet:
    """The split's two files in ``<root>/mnist/``, decoded once into the cache.

    Where one of them is missing, all that is missing of the four is downloaded. Raises DatasetError
    where that fails, or where a file is damaged or does not fit the other. Files that are sound but
    not the originals are used, with a warning.
    """
    check_options("mnist", options, ())
    folder = root / "mnist"
    if root.exists() and not root.is_dir():
        raise DatasetError(f"{root}: is not a folder; name the folder that 'mnist' lies in")
    paths = _find(folder, split)
    if len(paths) < len(_STEMS[split]):
        order: tuple[Split, ...] = (split, "test" if split == "train" else "train")
        names = [n for s in order for p, n in _names(s).items() if p not in _find(folder, s)]
        obtain("MNIST", folder, names, _ORIGIN, downloads, _ADVICE)
        paths = _find(folder, split)
    built: list[Arrays] = []

    def read() -> dict[str, str]:
        images, image_hash = read_idx(paths["images"], _SHAPE[1:])
        labels, label_hash = read_idx(paths["labels"], ())
        if len(images) != len(labels):
            raise DatasetError(
                f"{paths['images']} holds {len(images)} pictures, but {paths['labels']} holds "
                f"{len(labels)} labels: the two files do not belong together; fetch both again"
            )
        if labels.max() > 9:
            raise DatasetError(
                f"{paths['labels']}: label {labels.max()} of picture {int(labels.argmax())} is not "
                "a digit from 0 to 9; fetch the file again"
            )
        built.append((images.reshape(-1, *_SHAPE), labels.astype(np.int32)))
        return {"images": image_hash, "labels": label_hash}

    hashes = remembered(list(paths.values()), ("images", "labels"), read)

    def build() -> Arrays:
        if not built:
            read()
        return built[-1]

    for part, path in paths.items():
        if hashes[part] != _ORIGINALS[_names(split)[part]]:
            _LOG.warning("%s is not the original MNIST file: results are not comparable", path)
    images, labels = decoded(f"mnist-{split}", f"{hashes['images']} {hashes['labels']}", build)
    return ImageSet(f"mnist/{split}", images, labels, _CLASSES)


def files(root: Path, options: Options) -> tuple[DataFile, ...]:
    """The four files in ``<root>/mnist/``, each parsed and hashed once for its size and time."""
    return tuple(
        _checked(root / "mnist" / name, _find(root / "mnist", split).get(part), part)
        for split in _STEMS
        for part, name in _names(split).items()
    )


def _checked(wanted: Path, path: Path | None, part: str) -> DataFile:
    if path is None:
        return DataFile(wanted, "missing")

    def read() -> dict[str, str]:
        return {"sha256": read_idx(path, _SHAPE[1:] if part == "images" else ())[1]}

    try:
        found = remembered([path], ("sha256",), read)["sha256"]
    except DatasetError as error:
        return DataFile(path, "damaged", str(error))
    return DataFile(path, "verified" if found == _ORIGINALS[wanted.name] else "other")


def _names(split: Split) -> dict[str, str]:
    """The standard names of the split's files."""
    return {part: f"{stem}-idx{_DIMENSIONS[part]}-ubyte.gz" for part, stem in _STEMS[split].items()}


def _find(folder: Path, split: Split) -> dict[str, Path]:
    """The split's files that are there, in any of the spellings in use."""
    found: dict[str, Path] = {}
    for part, stem in _STEMS[split].items():
        spellings = (f"{stem}{joint}idx{_DIMENSIONS[part]}-ubyte" for joint in "-.")
        candidates = [folder / f"{name}{end}" for name in spellings for end in (".gz", "")]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            found[part] = path
    return found


SOURCE = Source(describe, load, files)
