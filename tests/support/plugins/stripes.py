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

    def describe(self, root):
        shape, classes = (1, self.size, self.size), ("horizontal", "vertical")
        return DatasetInfo(self.kind, shape, classes, self.count, self.count // 2)

    def load(self, split, root, downloads):
        info = self.describe(root)
        number = info.train_count if split == "train" else info.test_count
        draw = np.random.default_rng(0 if split == "train" else 1)
        labels = draw.integers(0, 2, number).astype(np.int32)
        lines = 160 * (np.arange(self.size) // 2 % 2)
        pictures = draw.integers(0, 96, (number, *info.shape)) + lines
        upright = labels[:, None, None, None] == 1
        images = np.where(upright, pictures, pictures.swapaxes(2, 3)).astype(np.uint8)
        return ImageSet(f"{self.kind}/{split}", images, labels, info.classes)
