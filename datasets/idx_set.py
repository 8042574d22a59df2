"""MNIST, Fashion-MNIST, and what has their format: IDX files of 28x28 grey pictures and labels."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
from ..common.files import sha256_file
from ..common.records import dataclass
from .decoded import Arrays, checked, decoded, read_once
from .download import Downloads, Origin, RemoteFile, obtain
from .idx import read_idx
from .image_set import DataFile, Dataset, DatasetInfo, ImageSet, Split, check_root

_LOG = logging.getLogger("dnnstack.datasets")

_SHAPE = (1, 28, 28)
_STEMS: dict[Split, str] = {"train": "train", "test": "t10k"}
_ITEMS: dict[str, tuple[int, ...]] = {"images": _SHAPE[1:], "labels": ()}
_ADVICE = (
    "Put the four standard IDX files there (with or without .gz), or name the folder above it with "
    "--data-dir or DNNSTACK_DATA; or train without a download: "
    "dnnstack train --config digits.yaml"
)


def file_name(stem: str, part: str) -> str:
    """The standard name of a file, such as ``train-images-idx3-ubyte.gz``."""
    return f"{stem}-{part}-idx{1 + len(_ITEMS[part])}-ubyte.gz"


@dataclass(frozen=True)
class IdxSet(Dataset):
    """Such a data set, in a folder with its name. origin: the four standard files."""

    name: str
    title: str
    classes: tuple[str, ...]
    origin: Origin

    def describe(self, root: Path) -> DatasetInfo:
        """Shape, classes and the originals' counts."""
        return DatasetInfo(self.name, _SHAPE, self.classes, 60_000, 10_000)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """Load the split's two files in the set's folder below ``root``, decoded into the cache.

        If one of them is missing, all missing ones of the four are downloaded. Raises DatasetError
        if that fails, or if a file is damaged or does not fit the other. Well-formed files that are
        not the originals are used, with a warning.
        """
        check_root(root, self.name)
        folder = root / self.name
        paths = _find(folder, split)
        if len(paths) < len(_ITEMS):
            order: tuple[Split, ...] = (split, "test" if split == "train" else "train")
            names = [
                file_name(_STEMS[s], part)
                for s in order
                for part in _ITEMS
                if part not in _find(folder, s)
            ]
            obtain(self.title, folder, names, self.origin, downloads, _ADVICE)
            paths = _find(folder, split)

        def read() -> tuple[dict[str, str], Arrays]:
            images, image_hash = read_idx(paths["images"], _SHAPE[1:])
            labels, label_hash = read_idx(paths["labels"], ())
            if len(images) != len(labels):
                raise DatasetError(
                    f"{paths['images']} has {len(images)} pictures, but {paths['labels']} has "
                    f"{len(labels)} labels: the files do not belong together; download both again"
                )
            if labels.max() >= len(self.classes):
                raise DatasetError(
                    f"{paths['labels']}: label {labels.max()} of picture {int(labels.argmax())} is "
                    f"not from 0 to {len(self.classes) - 1}; download the file again"
                )
            hashes = {"images": image_hash, "labels": label_hash}
            for part, content in tuple(hashes.items()):
                original = self._original(split, part)
                hashes[f"{part} known by"] = _known_by(original, paths[part], content)
            return hashes, (images.reshape(-1, *_SHAPE), labels.astype(np.int32))

        fields = tuple(field for part in paths for field in (part, f"{part} known by"))
        hashes, build = read_once(list(paths.values()), fields, read)
        for part, path in paths.items():
            if hashes[f"{part} known by"] != self._original(split, part).sha256:
                _LOG.warning(
                    "%s is not the original %s file: results are not comparable", path, self.title
                )
        content = f"{hashes['images']} {hashes['labels']}"
        images, labels = decoded(f"{self.name}-{split}", content, build)
        return ImageSet(f"{self.name}/{split}", images, labels, self.classes, key=content)

    def files(self, root: Path) -> tuple[DataFile, ...]:
        """The four files in the set's folder, checked; hashes are cached."""
        found = []
        for split in _STEMS:
            there = _find(root / self.name, split)
            for part in _ITEMS:
                original = self._original(split, part)
                path = there.get(part, root / self.name / original.name)
                found.append(checked(path, original.sha256, partial(_hash, original, path, part)))
        return tuple(found)

    def _original(self, split: Split, part: str) -> RemoteFile:
        """The original of a split's images or labels."""
        name = file_name(_STEMS[split], part)
        return next(file for file in self.origin.files if file.name == name)


def _hash(original: RemoteFile, path: Path, part: str) -> str:
    return _known_by(original, path, read_idx(path, _ITEMS[part])[1])


def _known_by(original: RemoteFile, path: Path, content: str) -> str:
    """The SHA-256 to compare with the original's: of the content, else of the file."""
    return content if original.content_size is not None else sha256_file(path)


def _find(folder: Path, split: Split) -> dict[str, Path]:
    """The split's existing files, in any of the usual spellings."""
    found: dict[str, Path] = {}
    for part in _ITEMS:
        packed = file_name(_STEMS[split], part)
        spellings = (packed, packed.replace("-idx", ".idx"))
        candidates = [folder / f"{name[:-3]}{end}" for name in spellings for end in (".gz", "")]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is not None:
            found[part] = path
    return found


# For each file its length and SHA-256. MNIST's compressed files differ by mirror, so its SHA-256 is
# that of the decompressed original, whose length follows.
_MNIST = """
train images 9912422 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db 47040016
train labels 28881 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5 60008
t10k images 1648877 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7 7840016
t10k labels 4542 ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2 10008
"""
_FASHION_MNIST = """
train images 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
train labels 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
t10k images 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
t10k labels 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
"""


def _origin(table: str, *mirrors: str) -> Origin:
    rows = map(str.split, table.strip().splitlines())
    files = (
        RemoteFile(file_name(split, part), int(size), digest, *map(int, content_size))
        for split, part, size, digest, *content_size in rows
    )
    return Origin(mirrors, tuple(files))


MNIST = IdxSet(
    "mnist",
    "MNIST",
    tuple("0123456789"),
    _origin(
        _MNIST,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://yann.lecun.com/exdb/mnist/",
    ),
)
FASHION_MNIST = IdxSet(
    "fashion_mnist",
    "Fashion-MNIST",
    (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    _origin(
        _FASHION_MNIST,
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
)
