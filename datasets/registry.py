"""Datasets by name: describe one without reading it, load a split, find the data folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..common.errors import DatasetError
from ..common.files import cache_dir
from ..common.text import suggested
from .cifar_files import CIFAR_10, CIFAR_100
from .csv_set import Csv
from .download import Downloads
from .idx_set import FASHION_MNIST, MNIST
from .image_folder import ImageFolder
from .image_set import DataFile, Dataset, DatasetInfo, ImageSet, Split
from .npz import Given, Npz
from .own_validation import with_validation
from .series import Series
from .strokes import Strokes
from .table import Table

_LOG = logging.getLogger("dnnstack.datasets")

Options = Mapping[str, Any]
DATASETS: dict[str, Dataset] = {
    "arrays": Given(),
    "cifar10": CIFAR_10,
    "cifar100": CIFAR_100,
    "csv": Csv(),
    "fashion_mnist": FASHION_MNIST,
    "image_folder": ImageFolder(),
    "mnist": MNIST,
    "npz": Npz(),
    "series": Series(),
    "strokes": Strokes(),
    "table": Table(),
}
"""The data sets that a config can name, each with the defaults of its options."""


def names() -> tuple[str, ...]:
    """The registered datasets that have samples, in alphabetical order."""
    return tuple(sorted(DATASETS.keys() - {"arrays"}))


def describe(name: str, *, options: Options | None = None, root: Path | None = None) -> DatasetInfo:
    """Shape, classes and nominal counts of a dataset; no data is read.

    root: the data folder, in which the names of an image_folder's classes are looked up. Raises
    DatasetError for an unknown name or a wrong value.
    """
    return _dataset(name, options).describe(root or _data_root(None, None)[0])


def load(
    name: str,
    split: Split,
    *,
    root: Path,
    options: Options | None = None,
    downloads: Downloads | None = None,
) -> ImageSet:
    """One split of a dataset, ``root`` being the data folder (``data_root``).

    Validation samples of its own stand behind those to train on, as ``held`` says. Missing files
    are downloaded into ``root``, unless ``downloads`` (by default, the environment) forbids it.
    Raises DatasetError for an unknown name, for damaged files, and for missing ones that cannot
    be downloaded.
    """
    chosen, downloads = _dataset(name, options), downloads or Downloads()
    found = chosen.load(split, root, downloads)
    if split == "train" and getattr(chosen, "validation", None) is not None:
        return with_validation(found, chosen.load("validation", root, downloads))
    return found


def files(name: str, root: Path, options: Options | None = None) -> tuple[DataFile, ...]:
    """The files of a data set in the data folder ``root``, checked; none if it needs none.

    Nothing is downloaded. Raises DatasetError for an unknown name.
    """
    return _dataset(name, options).files(root)


def source_of(name: str) -> str:
    """A clause that says where the samples of a data set without known files come from."""
    return _dataset(name).about


def data_root(
    flag: Path | None = None,
    config_root: str | None = None,
    trained_on: str = "",
    pictures: str = "",
) -> Path:
    """``--data-dir``, else ``DNNSTACK_DATA``, else the folder that a run was trained with, if it is
    still there, else ``data.root``, else the cache's own folder.

    pictures: a folder of the user's own pictures, or a file of rows. If ``data.root`` contains it,
    ``data.root`` comes before the environment, which says where the known data sets are, unless the
    run was trained with another folder that is still there.
    """
    own = Path(config_root or "").expanduser()
    beside = config_root and pictures and (own / Path(pictures).expanduser()).exists()
    elsewhere = trained_on not in ("", str(own.absolute())) and Path(trained_on).is_dir()
    if flag is None and beside and not elsewhere:
        _LOG.info("data folder: %s, by data.root of the config, with %s", own, pictures)
        return own
    folder, source = _data_root(flag, config_root, trained_on)
    _LOG.info("data folder: %s, %s", folder, source)
    return folder


def _data_root(
    flag: Path | None, config_root: str | None, trained_on: str = ""
) -> tuple[Path, str]:
    """The folder, and who named it."""
    named = {
        "--data-dir": flag,
        "DNNSTACK_DATA": os.environ.get("DNNSTACK_DATA"),
        "the run": trained_on if trained_on and Path(trained_on).is_dir() else None,
        "data.root of the config": config_root,
    }
    for source, folder in named.items():
        if folder is not None and str(folder):
            return Path(folder).expanduser(), f"by {source}"
    return cache_dir() / "data", "in the cache folder"


def _dataset(name: str, options: Options | None = None) -> Dataset:
    """The data set with these options, which the schema of configs checks."""
    chosen = DATASETS.get(name)
    if chosen is None:
        known = f"{suggested(name.lower(), names(), 'known')}: {', '.join(names())}"
        raise DatasetError(f"unknown dataset '{name}'; {known}")
    return replace(chosen, **(options or {}))
