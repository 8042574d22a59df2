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
    by_path = "path" in rows.names and any(rows.column("path"))
    test = np.zeros(len(rows), np.bool_)
    if "split" in rows.names:
        test = _places(rows, "split", ("train", "validation", "test"), "splits") == 2
    kept = np.flatnonzero(test == (split == "test")).tolist()
    cells, lines = [rows.cells[at] for at in kept], [rows.lines[at] for at in kept]
    rows, labels = replace(rows, lines=lines, cells=cells), images.labels.copy()
    key, own = "path" if by_path else "index", f"of {images.name}; correct it"
    names = (*images.sources, *images.names) if by_path else map(str, range(len(images)))
    at = _places(rows, key, names, f"samples {own}") % len(images)
    labels[at] = _places(rows, "label", images.classes, f"classes {own}")
    labels.setflags(write=False)
    return replace(images, labels=labels)


def _places(rows: Rows, key: str, names: Iterable[str], what: str) -> NDArray[np.int32]:
    """The place among the names of each cell, which may have an apostrophe before a formula."""
    check_names(rows, [key])
    known = {name: at for at, name in enumerate(names)}
    plain = {each: each.removeprefix("'") for each in rows.column(key) if each not in known}
    known |= {each: known[name] for each, name in plain.items() if name in known}
    found = placed(rows, key, known, what)
    if MISSING in found:
        raise gap(rows, found.tolist().index(MISSING), key)
    return found
