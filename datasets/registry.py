"""Datasets by name: describe one without reading it, load a split, find the data folder."""

from __future__ import annotations

import difflib
import logging
import os
from pathlib import Path
from typing import get_args

from ..common.errors import DatasetError
from ..common.files import cache_dir
from . import cifar, fashion_mnist, image_folder, mnist, strokes, table
from .download import Downloads
from .image_set import DataFile, DatasetInfo, ImageSet, Options, Source, Split

_LOG = logging.getLogger("dnnstack.datasets")

_SOURCES: dict[str, Source] = {
    "cifar10": cifar.CIFAR10_SOURCE,
    "cifar100": cifar.CIFAR100_SOURCE,
    "fashion_mnist": fashion_mnist.SOURCE,
    "image_folder": image_folder.SOURCE,
    "mnist": mnist.SOURCE,
    "strokes": strokes.SOURCE,
    "table": table.SOURCE,
}


def names() -> tuple[str, ...]:
    """The registered datasets, in alphabetical order."""
    return tuple(sorted(_SOURCES))


def describe(name: str, *, options: Options | None = None, root: Path | None = None) -> DatasetInfo:
    """Shape, classes and nominal counts of a dataset; no data is read.

    root: the data folder, in which the names of an image_folder's classes are looked up. Raises
    DatasetError for an unknown name or a wrong option.
    """
    return _source(name).describe(options or {}, root or _data_root(None, None)[0])


def load(
    name: str,
    split: Split,
    *,
    root: Path,
    options: Options | None = None,
    downloads: Downloads | None = None,
) -> ImageSet:
    """One split of a dataset, ``root`` being the data folder (``data_root``).

    Missing files are downloaded into it, unless ``downloads`` (by default, the environment) forbids
    it. Raises DatasetError for an unknown name, split or option, for damaged files, and for missing
    ones that cannot be downloaded.
    """
    if split not in get_args(Split):
        raise DatasetError(f"split '{split}' does not exist; the splits are train and test")
    return _source(name).load(split, root, options or {}, downloads or Downloads())


def files(name: str, root: Path, options: Options | None = None) -> tuple[DataFile, ...]:
    """The files of a data set in the data folder ``root``, checked; none if it needs none.

    Nothing is downloaded. Raises DatasetError for an unknown name or a wrong option.
    """
    return _source(name).files(root, options or {})


def source_of(name: str) -> str:
    """A clause that says where the samples of a data set without known files come from."""
    return _source(name).about


def data_root(
    flag: Path | None = None, config_root: str | None = None, trained_on: str = ""
) -> Path:
    """``--data-dir``, else ``DNNSTACK_DATA``, else the folder that a run was trained with, if it is
    still there, else ``data.root``, else the cache's own folder."""
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


def _source(name: str) -> Source:
    source = _SOURCES.get(name)
    if source is None:
        close = difflib.get_close_matches(name.lower(), names(), n=1)
        guess = f"did you mean '{close[0]}'? Known" if close else "known"
        raise DatasetError(f"unknown dataset '{name}'; {guess}: {', '.join(names())}")
    return source
