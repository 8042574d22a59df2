"""What a config trains on: files, class counts, mean and standard deviation of the pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.records import dataclass
from ..common.text import samples_of
from ..configs import RunConfig
from ..datasets import DataFile, DatasetInfo, Downloads, ImageSet, source_of
from ..datasets.repeated import lacking
from ..graph.augmentations import Augmentation
from ..training.assemble import data_files, describe_data, load_data
from ..training.augmentation import augmentations
from ..training.normalization import (
    mean_and_deviation,
    of_trained_rows,
    preprocessing,
    preprocessing_of,
)
from ..training.preprocessing import Preprocessing
from ..training.splits import divide, settled


@dataclass(frozen=True)
class DataReport:
    """A data set as training uses it.

    counts: the pictures of each class, for train, validation and test, or how many have yes, or
    which share; empty for numbers. sizes: of all of a part. mean, std: of the training
    pictures, one for each channel, in units of pixel / 255, or of the values that the bytes stand
    for if ``about`` says so. train: indices of the training pictures in ``images``, ascending.
    source: where the pictures come from, if there are no known files.
    """

    root: Path
    about: DatasetInfo
    files: tuple[DataFile, ...]
    source: str
    images: ImageSet
    train: NDArray[np.int32]
    counts: Mapping[str, NDArray[Any]]
    sizes: Mapping[str, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    scaling: Preprocessing
    augment: tuple[Augmentation, ...] = ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """What a person should know: pictures that are there twice, classes that lack some."""
        told = list(self.images.doubts)
        for part, counts in self.counts.items():
            names = [self.images.classes[at] for at in np.flatnonzero(counts == 0)]
            told += lacking(part, names if self.sizes[part] else [], samples_of(self.shape))
        return tuple(dict.fromkeys(told))

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
        channels = self.shape[0]
        units = self.about.scale or (1.0 if self.about.floats else 1 / 255,) * channels
        zeros = self.about.shift or (0.0,) * channels
        bytes_mean = [(m - z) / u for m, z, u in zip(self.mean, zeros, units, strict=True)]
        bytes_std = [s / u for s, u in zip(self.std, units, strict=True)]
        return _scaled(bytes_mean, bytes_std, self.scaling.scale, self.scaling.shift)

    def to_json(self) -> dict[str, Any]:
        seen_mean, seen_std = self.seen
        columns = self.images.columns
        return {
            "dataset": self.dataset,
            "root": str(self.root),
            "files": [{**vars(file), "path": str(file.path)} for file in self.files],
            "shape": self.shape,
            "classes": self.images.classes,
            "splits": {
                part: {"count": self.sizes[part], "class_counts": counts.tolist()}
                for part, counts in self.counts.items()
            },
            **({"columns": [*map(asdict, columns.inputs)]} if columns else {}),
            "mean": self.mean,
            "std": self.std,
            "seen_mean": seen_mean,
            "seen_std": seen_std,
            "doubts": self.doubts,
        }


def report(config: RunConfig, root: Path, downloads: Downloads | None = None) -> DataReport:
    """Read the config's data set in the data folder ``root``; missing files are downloaded.

    Raises DatasetError, or ConfigError for a normalization that does not fit the pictures.
    """
    info = describe_data(config, root)
    preprocessing(config, info)
    augment = augmentations(config, info.shape)
    images = load_data(config, "train", root, downloads)
    test = load_data(config, "test", root, downloads)
    train, validation = divide(settled(config), images.labels, images.held)
    images = of_trained_rows(images, train)
    mean, std = mean_and_deviation(images.images, train)
    if info.scale is not None and info.shift is not None:
        mean, std = _scaled(mean, std, [255 * unit for unit in info.scale], info.shift)
    parts = {"train": (images, train), "validation": (images, validation)}
    parts["test"] = test, np.arange(len(test), dtype=np.int32)
    return DataReport(
        root=root,
        about=info,
        files=data_files(config, root),
        source=source_of(config.data.dataset.type),
        images=images,
        train=train,
        counts={
            part: np.array([] if info.kind == "numbers" else own.counts(rows))
            for part, (own, rows) in parts.items()
        },
        sizes={part: len(rows) for part, (_, rows) in parts.items()},
        mean=mean,
        std=std,
        scaling=preprocessing_of(config, info, images, train),
        augment=augment,
    )


def _scaled(
    mean: Sequence[float], std: Sequence[float], scale: Sequence[float], shift: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of x * scale + shift, from those of x."""
    means = zip(mean, scale, shift, strict=True)
    deviations = zip(std, scale, strict=True)
    return tuple(m * a + b for m, a, b in means), tuple(s * a for s, a in deviations)
