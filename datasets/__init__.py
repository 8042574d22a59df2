"""Datasets: what they are, how they are read or drawn, cut and ordered."""

from __future__ import annotations

from .download import Downloads
from .image_set import DataFile, DatasetInfo, ImageSet, Split
from .loader import (
    balanced_order,
    epoch_order,
    evaluation_order,
    split_fold,
    split_validation,
    steps_per_epoch,
)
from .picture_files import find_pictures
from .pictures import Picture, Preparation, as_image, as_picture, read_picture
from .registry import data_root, describe, files, load, names, source_of

__all__ = [
    "DataFile",
    "DatasetInfo",
    "Downloads",
    "ImageSet",
    "Picture",
    "Preparation",
    "Split",
    "as_image",
    "as_picture",
    "balanced_order",
    "data_root",
    "describe",
    "epoch_order",
    "evaluation_order",
    "files",
    "find_pictures",
    "load",
    "names",
    "read_picture",
    "source_of",
    "split_fold",
    "split_validation",
    "steps_per_epoch",
]
