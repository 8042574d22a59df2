"""``strokes``: generated handwritten digits in MNIST's format, without any files.

Digits are drawn from stroke skeletons with random slant, proportions, rotation, distortion, pen and
ink. The set is unlimited: the option ``seed`` selects another one, and the counts how much of it
is used. Training and test digits are drawn with different keys.
"""

from __future__ import annotations

from pathlib import Path

from ..common.random import key
from .decoded import Arrays, decoded
from .download import Downloads
from .image_set import (
    DatasetInfo,
    ImageSet,
    Options,
    Source,
    Split,
    check_options,
    integer_option,
)
from .strokes_draw import draw

# To be increased whenever a drawn picture changes, so that old cache entries are not used.
VERSION = 2
_CLASSES = tuple("0123456789")
_COUNTS: dict[Split, tuple[str, int]] = {
    "train": ("train_count", 60_000),
    "test": ("test_count", 10_000),
}


def describe(options: Options, root: Path) -> DatasetInfo:
    """Shape, classes and counts. Raises DatasetError for a wrong option."""
    check_options("strokes", options, ("train_count", "test_count", "seed"))
    _seed(options)
    return DatasetInfo(
        "strokes", (1, 28, 28), _CLASSES, _count("train", options), _count("test", options)
    )


def load(split: Split, root: Path, options: Options, downloads: Downloads) -> ImageSet:
    """The split's pictures, drawn once into the cache; ``root`` is not used."""
    describe(options, root)
    count, seed = _count(split, options), _seed(options)

    def build() -> Arrays:
        images, labels = draw(key(seed, "strokes", split), 0, count)
        return images[:, None], labels

    content = f"strokes {VERSION} {seed} {split} {count}"
    images, labels = decoded(f"strokes-{split}", content, build)
    return ImageSet(f"strokes/{split}", images, labels, _CLASSES)


def _count(split: Split, options: Options) -> int:
    name, default = _COUNTS[split]
    return integer_option("strokes", options, name, default, low=1, high=10_000_000)


def _seed(options: Options) -> int:
    return integer_option("strokes", options, "seed", 0, low=0, high=2**63 - 1)


SOURCE = Source(describe, load, about="the program draws the pictures")
