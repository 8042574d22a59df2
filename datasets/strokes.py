"""``strokes``: generated handwritten digits in MNIST's format, without any files.

Digits are drawn from stroke skeletons with random slant, proportions, rotation, distortion, pen and
ink. The set is unlimited: the option ``seed`` selects another one, and the counts how much of it
is used. Training and test digits are drawn with different keys.
"""

from __future__ import annotations

from pathlib import Path

from ..common.errors import DatasetError
from ..common.random import key
from ..common.records import dataclass
from .decoded import Arrays, decoded
from .download import Downloads
from .image_set import Dataset, DatasetInfo, ImageSet, Split
from .strokes_draw import draw

# To be increased whenever a drawn picture changes, so that old cache entries are not used.
VERSION = 2
_CLASSES = tuple("0123456789")
_MOST = 10_000_000


@dataclass(frozen=True)
class Strokes(Dataset):
    about = "the program draws the pictures"
    train_count: int = 60_000
    test_count: int = 10_000
    seed: int = 0

    def describe(self, root: Path) -> DatasetInfo:
        """Shape, classes and counts. Raises DatasetError for a count that is too large."""
        counts = {"train_count": self.train_count, "test_count": self.test_count}
        for option, count in counts.items():
            if count > _MOST:
                raise DatasetError(
                    f"dataset 'strokes', option '{option}': expects an integer from 1 to {_MOST}, "
                    f"got {count}"
                )
        return DatasetInfo("strokes", (1, 28, 28), _CLASSES, self.train_count, self.test_count)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The split's pictures, drawn once into the cache; ``root`` is not used."""
        self.describe(root)
        count = self.train_count if split == "train" else self.test_count

        def build() -> Arrays:
            images, labels = draw(key(self.seed, "strokes", split), 0, count)
            return images[:, None], labels

        content = f"strokes {VERSION} {self.seed} {split} {count}"
        images, labels = decoded(f"strokes-{split}", content, build)
        return ImageSet(f"strokes/{split}", images, labels, _CLASSES, key=content)
