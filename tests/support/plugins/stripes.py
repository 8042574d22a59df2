"""Striped pictures, as a data set."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from dnnstack.plugins import Count, Dataset, DatasetInfo, ImageSet


@dataclass(frozen=True)
class Stripes(Dataset):
    """Noisy stripes, horizontal or vertical."""

    kind = "stripes"
    about = "the plugin stripes.py draws them"
    count: Annotated[Count, "Pictures to train on, and half as many to test on."] = 400
    size: Annotated[Count, "Pixels of a side."] = 12
    validation: Annotated[Count | None, "Pictures to validate on; default: none."] = None

    def describe(self, root):
        shape, classes = (1, self.size, self.size), ("horizontal", "vertical")
        counts = {"train_count": self.count, "test_count": self.count // 2}
        return DatasetInfo(self.kind, shape, classes, **counts, validation_count=self.validation)

    def load(self, split, root, downloads):
        info = self.describe(root)
        counts = {"train": info.train_count, "test": info.test_count}
        counts["validation"] = info.validation_count
        number, draw = counts[split], np.random.default_rng([*counts].index(split))
        labels = draw.integers(0, 2, number).astype(np.int32)
        lines = 160 * (np.arange(self.size) // 2 % 2)
        pictures = draw.integers(0, 96, (number, *info.shape)) + lines
        upright = labels[:, None, None, None] == 1
        images = np.where(upright, pictures, pictures.swapaxes(2, 3)).astype(np.uint8)
        return ImageSet(f"{self.kind}/{split}", images, labels, info.classes)
