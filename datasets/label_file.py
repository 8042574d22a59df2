"""A CSV file of corrected labels: samples by their index or path, and the class of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .columns import MISSING, check_names, gap, placed
from .csv_file import Rows, read_rows
from .image_set import ImageSet, Split


def relabelled(images: ImageSet, name: str | None, split: Split, root: Path) -> ImageSet:
    """The samples of a split with the classes that the file has for them; None: as they are.

    Samples are named by ``path``, their names or sources, or by ``index``. Rows of another
    ``split``, by default "train", are passed over; the last one of a sample holds. root: the data
    folder. Raises DatasetError.
    """
    if name is None:
        return images
    rows = read_rows(
        root / Path(name).expanduser(), check=lambda head: check_names(head, ["label"])
    )
    if "split" in rows.names:
        test = _places(rows, "split", ("train", "validation", "test"), "splits") == 2
        own = np.flatnonzero(test == (split == "test")).tolist()
        cells, lines = [rows.cells[at] for at in own], [rows.lines[at] for at in own]
        rows = replace(rows, lines=lines, cells=cells)
    labels, what = images.labels.copy(), f"samples of {images.name}"
    if "path" in rows.names and any(rows.column("path")):
        at = _places(rows, "path", (*images.sources, *images.names), what) % len(images)
    else:
        at = _places(rows, "index", map(str, range(len(images))), what)
    labels[at] = _places(rows, "label", images.classes, f"classes of {images.name}")
    labels.setflags(write=False)
    return replace(images, labels=labels)


def _places(rows: Rows, key: str, names: Iterable[str], what: str) -> NDArray[np.int32]:
    """The place among the names of each cell, which an apostrophe may keep from being a formula."""
    check_names(rows, [key])
    known = {text: at for at, each in enumerate(names) for text in (each, f"'{each}")}
    found = placed(rows, key, known, f"{what}; correct it")
    if MISSING in found:
        raise gap(rows, found.tolist().index(MISSING), key)
    return found
