"""What a config trains on: files, class counts, mean and standard deviation of the pixels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..datasets import DataFile, Downloads, ImageSet, split_validation
from ..layers.augment import Augmentation
from .assemble import data_files, describe_data, load_data, preprocessing
from .augmentation import augmentations
from .network import Preprocessing
from .statistics import mean_and_deviation

if TYPE_CHECKING:
    from ..configs.schema import RunConfig


@dataclass(frozen=True)
class DataReport:
    """A data set as a training takes it.

    counts: for train, validation and test the pictures of each class. mean, std: of the pictures to
    train on, one for each channel, in units of pixel / 255. train: indices of these pictures in
    ``images``, ascending.
    """

    root: Path
    files: tuple[DataFile, ...]
    images: ImageSet
    train: NDArray[np.int32]
    counts: Mapping[str, NDArray[np.int64]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scaling: Preprocessing
    augment: tuple[Augmentation, ...] = ()

    @property
    def dataset(self) -> str:
        return self.images.name.partition("/")[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W)."""
        _, channels, height, width = self.images.images.shape
        return channels, height, width

    @property
    def seen(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation, one for each channel, after the config's normalization."""
        scaled = zip(self.scaling.scale, self.scaling.shift, strict=True)
        pairs = [
            (255 * mean * scale + shift, 255 * std * scale)
            for mean, std, (scale, shift) in zip(self.mean, self.std, scaled, strict=True)
        ]
        return tuple(mean for mean, _ in pairs), tuple(std for _, std in pairs)

    def to_json(self) -> dict[str, Any]:
        seen = self.seen
        return {
            "dataset": self.dataset,
            "root": str(self.root),
            "files": [{**vars(file), "path": str(file.path)} for file in self.files],
            "shape": list(self.shape),
            "classes": list(self.images.classes),
            "splits": {
                part: {"count": int(counts.sum()), "class_counts": counts.tolist()}
                for part, counts in self.counts.items()
            },
            "mean": list(self.mean),
            "std": list(self.std),
            "seen_mean": list(seen[0]),
            "seen_std": list(seen[1]),
        }


def report(config: RunConfig, root: Path, downloads: Downloads | None = None) -> DataReport:
    """Read the config's data set in the data folder ``root``; what is missing is downloaded.

    Raises DatasetError, or ConfigError for a normalization that does not fit the pictures.
    """
    info = describe_data(config, root)
    preprocessing(config, info)
    augment = augmentations(config, info.shape)
    images = load_data(config, "train", root, downloads)
    test = load_data(config, "test", root, downloads)
    train, validation = split_validation(len(images), config.data.validation, config.seed)
    classes = len(info.classes)
    mean, std = mean_and_deviation(images.images, train)
    return DataReport(
        root=root,
        files=data_files(config, root),
        images=images,
        train=train,
        counts={
            "train": np.bincount(images.labels[train], minlength=classes),
            "validation": np.bincount(images.labels[validation], minlength=classes),
            "test": np.bincount(test.labels, minlength=classes),
        },
        mean=mean,
        std=std,
        scaling=preprocessing(config, info, (mean, std)),
        augment=augment,
    )
