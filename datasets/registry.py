"""Datasets by name: describe one without reading it, load a split, find the data folder."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import get_args

from ..common.errors import DatasetError
from ..common.files import cache_dir
from . import mnist, strokes
from .image_set import DatasetInfo, ImageSet, Options, Source, Split

_SOURCES: dict[str, Source] = {
    "mnist": mnist.SOURCE,
    "strokes": strokes.SOURCE,
}


def names() -> tuple[str, ...]:
    """The registered datasets, in alphabetical order."""
    return tuple(sorted(_SOURCES))


def describe(name: str, *, options: Options | None = None) -> DatasetInfo:
    """Shape, classes and nominal counts of a dataset; no data is read.

    Raises DatasetError for an unknown name or a wrong option.
    """
    return _source(name).describe(options or {})


def load(name: str, split: Split, *, root: Path, options: Options | None = None) -> ImageSet:
    """One split of a dataset, ``root`` being the data folder (``data_root``).

    Raises DatasetError for an unknown name, split or option, and for missing or damaged files.
    """
    if split not in get_args(Split):
        raise DatasetError(f"split '{split}' does not exist; the splits are train and test")
    return _source(name).load(split, root, options or {})


def data_root(flag: Path | None = None, config_root: str | None = None) -> Path:
    """``--data-dir``, else ``DNNSTACK_DATA``, else ``data.root``, else the cache's own folder."""
    if flag is not None:
        return Path(flag).expanduser()
    environment = os.environ.get("DNNSTACK_DATA")
    if environment:
        return Path(environment).expanduser()
    if config_root:
        return Path(config_root).expanduser()
    return cache_dir() / "data"


def _source(name: str) -> Source:
    source = _SOURCES.get(name)
    if source is None:
        close = difflib.get_close_matches(name.lower(), names(), n=1)
        guess = f"did you mean '{close[0]}'? " if close else ""
        raise DatasetError(f"unknown dataset '{name}'; {guess}Known: {', '.join(names())}")
    return source
