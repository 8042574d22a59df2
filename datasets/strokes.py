"""``strokes``: generated handwritten digits in MNIST's format, without any files.

Digits are drawn from stroke skeletons with random slant, proportions, rotation, distortion, pen and
ink. The set is unlimited: the option ``seed`` selects another one, and the counts how much of it
is used. Training and test digits are drawn with different keys.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from ..common.errors import DatasetError
from ..common.random import Key, key
from ..common.records import dataclass
from .decoded import Arrays, decoded
from .download import Downloads
from .image_set import Dataset, DatasetInfo, ImageSet, Split
from .strokes_draw import draw

_MOST = 10_000_000


@dataclass(frozen=True)
class Strokes(Dataset):
    """``version``: to be increased whenever a drawn picture changes, so that old cache entries are
    not used. Another set that is drawn derives from this one."""

    about = "the program draws the pictures"
    version: ClassVar[int] = 2
    known: ClassVar[DatasetInfo] = DatasetInfo("strokes", (1, 28, 28), (*"0123456789",), None, None)
    train_count: int = 60_000
    test_count: int = 10_000
    seed: int = 0

    def draw(self, stream: Key, count: int) -> Arrays:
        """The first samples of a stream, (count, C, H, W), and their labels."""
        images, labels = draw(stream, 0, count)
        return images[:, None], labels

    def describe(self, root: Path) -> DatasetInfo:
        """Shape, classes and counts. Raises DatasetError for a count that is too large."""
        counts: dict[str, Any] = {"train_count": self.train_count, "test_count": self.test_count}
        for option, count in counts.items():
            if count > _MOST:
                raise DatasetError(
                    f"dataset '{self.known.name}', option '{option}': expects an integer from 1 to "
                    f"{_MOST}, got {count}"
                )
        return replace(self.known, **counts)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The split's samples, drawn once into the cache; ``root`` is not used."""
        name, classes = self.describe(root).name, self.known.classes
        count = self.train_count if split == "train" else self.test_count
        content = f"{name} {self.version} {self.seed} {split} {count}"
        stream = key(self.seed, name, split)
        arrays = decoded(f"{name}-{split}", content, lambda: self.draw(stream, count))
        return ImageSet(f"{name}/{split}", *arrays, classes, key=content)
