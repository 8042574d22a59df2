"""MNIST (LeCun, Cortes, Burges): 60,000 + 10,000 handwritten digits, 28x28, from four IDX files."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
from .decoded import Arrays, decoded, remembered
from .idx import read_idx
from .image_set import DatasetInfo, ImageSet, Options, Source, Split, check_options

_LOG = logging.getLogger("dnnstack.datasets")

_SHAPE = (1, 28, 28)
_CLASSES = tuple("0123456789")
_STEMS: dict[Split, dict[str, str]] = {
    "train": {"images": "train-images", "labels": "train-labels"},
    "test": {"images": "t10k-images", "labels": "t10k-labels"},
}
# SHA-256 of the decompressed originals.
_ORIGINALS = {
    "train-images": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


def describe(options: Options) -> DatasetInfo:
    """Shape, classes and the originals' counts. Raises DatasetError for any option."""
    check_options("mnist", options, ())
    return DatasetInfo("mnist", _SHAPE, _CLASSES, 60_000, 10_000)


def load(split: Split, root: Path, options: Options) -> ImageSet:
    """The split's two files in ``<root>/mnist/``, decoded once into the cache.

    Raises DatasetError where a file is missing, is damaged or does not fit the other. Files that
    are sound but not the originals are used, with a warning.
    """
    check_options("mnist", options, ())
    paths = _find(root / "mnist", split)
    built: list[Arrays] = []

    def read() -> dict[str, str]:
        images, image_hash = read_idx(paths["images"], _SHAPE[1:])
        labels, label_hash = read_idx(paths["labels"], ())
        if len(images) != len(labels):
            raise DatasetError(
                f"{paths['images']} holds {len(images)} pictures, but {paths['labels']} holds "
                f"{len(labels)} labels: the two files do not belong together"
            )
        if labels.max() > 9:
            raise DatasetError(
                f"{paths['labels']}: label {labels.max()} of picture {int(labels.argmax())} is not "
                "a digit from 0 to 9"
            )
        built.append((images.reshape(-1, *_SHAPE), labels.astype(np.int32)))
        return {"images": image_hash, "labels": label_hash}

    hashes = remembered(list(paths.values()), ("images", "labels"), read)

    def build() -> Arrays:
        if not built:
            read()
        return built[-1]

    for part, path in paths.items():
        if hashes[part] != _ORIGINALS[_STEMS[split][part]]:
            _LOG.warning("%s is not the original MNIST file: results are not comparable", path)
    images, labels = decoded(f"mnist-{split}", f"{hashes['images']} {hashes['labels']}", build)
    return ImageSet(f"mnist/{split}", images, labels, _CLASSES)


def _find(folder: Path, split: Split) -> dict[str, Path]:
    found: dict[str, Path] = {}
    missing: list[str] = []
    for part, dimensions in (("images", 3), ("labels", 1)):
        stem = _STEMS[split][part]
        spellings = (f"{stem}-idx{dimensions}-ubyte", f"{stem}.idx{dimensions}-ubyte")
        candidates = [folder / f"{name}{end}" for name in spellings for end in (".gz", "")]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            missing.append(f"{spellings[0]}.gz")
        else:
            found[part] = path
    if missing:
        raise DatasetError(
            f"MNIST is not in {folder}: missing {' and '.join(missing)} (also accepted without "
            ".gz). Put the four standard IDX files there, or name the folder above it with "
            "--data-dir or DNNSTACK_DATA; or train without any download: "
            "dnnstack train --config digits.yaml"
        )
    return found


SOURCE = Source(describe, load)
