"""``csv``: rows of a file of separated values, each with numbers and categories, and its targets.

What a column is, the rows to train on say. These are read once in a process, and kept.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.files import sha256_bytes
from ..common.records import dataclass
from ..common.targets import Kind
from ..common.text import listed
from .class_folders import PictureFile
from .columns import (
    MISSING,
    Columns,
    Missing,
    Unknown,
    answers,
    check_names,
    encoded,
    find_column,
    gap,
    is_missing,
    natural,
    number,
    numbers,
    placed,
)
from .csv_file import Encoding, Rows, read_rows
from .decoded import file_stamp
from .download import Downloads
from .identity import CONTENT_DIGITS
from .image_folder import OwnPictures
from .image_set import DatasetInfo, ImageSet, Split, own_file, unreadable
from .repeated import repeated

_LOG = logging.getLogger("dnnstack.datasets")
_MOST_CLASSES = 10_000
# More different whole numbers than these are no classes unless the config says so.
_FEW = 100
_NAMED = 5


@dataclass(frozen=True)
class Csv(OwnPictures):
    """``columns``: of a trained network; else the training file says them. The other options are
    described in the schema of configs."""

    about = "the rows are in the files that the config names"
    inputs: Sequence[str] | None = None
    targets: Sequence[str] = ()
    kind: Kind | None = None
    categories: Sequence[str] | None = None
    missing: Missing = "error"
    unknown: Unknown = "error"
    separator: str | None = None
    encoding: Encoding | None = None
    picture: str | None = None
    columns: Columns | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """One channel for a number or an answer, one for each category: shape (channels, 1, 1).

        Reads the training file, the targets before the inputs, unless ``columns`` are known.
        Raises DatasetError.
        """
        if not (self.train and self.targets):
            raise DatasetError("dataset 'csv': needs the options 'train', a file, and 'targets'")
        columns = self.columns
        counts: tuple[int | None, int | None] = None, None
        if columns is None:
            columns, parts = self._trained_on(root)
            counts = len(parts["train"]), len(parts["test"]) if "test" in parts else None
        floats = self.picture is None
        shape = (columns.width, 1, 1) if floats else self.shape
        facts = ("csv", shape, columns.classes, *counts)
        return DatasetInfo(*facts, floats=floats, kind=columns.kind)

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The rows of a split in the order of the file. Raises DatasetError."""
        rows = self._split(split, root)
        if self.picture is None:
            return rows
        table = self._path(self.source(split), root)
        return _with_pictures(rows, table, self, partial(self.load, "train", root, downloads))

    def _split(self, split: Split, root: Path) -> ImageSet:
        """The rows of a split; where they name pictures, without these."""
        if self.source(split) == "train":
            return self._trained_on(root)[1][split]
        columns = self.columns or self._trained_on(root)[0]
        return self._set(split, self._rows(split, root), columns)

    def _trained_on(self, root: Path) -> tuple[Columns, dict[Split, ImageSet]]:
        paths = [self._path(key, root) for key in ("train", "test") if getattr(self, key)]
        try:
            stamps = tuple(file_stamp(path.stat()) for path in paths)
        except OSError as error:
            raise unreadable(Path(error.filename), error) from None
        return _read(replace(self, bits=None), root, stamps)

    def read(self, root: Path) -> tuple[Columns, dict[Split, ImageSet]]:
        """The training file: its columns, and its rows, of which some are held out for testing."""
        rows = self._rows("train", root)
        columns = self.columns or self._found(rows)
        whole = self._set("train", rows, columns)
        if self.test is None:
            held = _held_out(whole, self.test_fraction, rows.path)
            # A category that is only tested on is told before the training, not after it.
            columns.settled(whole, np.flatnonzero(~held).astype(np.int32))
            sets: dict[Split, ImageSet] = {"train": whole, "test": whole}
            for part in sets:
                index = np.flatnonzero(held == (part == "test")).astype(np.int32)
                own = whole.taken(index, whole.labels[index], whole.classes)
                sets[part] = replace(own, name=f"csv/{part}")
            return columns, sets
        # Problems of the test rows are reported before the training, not after it.
        test = self._set("test", self._rows("test", root), columns)
        both: tuple[tuple[Split, ImageSet], ...] = ("train", whole), ("test", test)
        samples = {
            part: [(f"{part}: {n}", 0, c) for n, c in zip(own.names, own.contents, strict=True)]
            for part, own in both
        }
        return columns, {"train": replace(whole, doubts=repeated(samples, "rows"))}

    def _path(self, key: str, root: Path) -> Path:
        return own_file(f"csv.{key}", getattr(self, key), root)

    def _rows(self, split: Split, root: Path) -> Rows:
        """The rows of a file, whose header has the columns; else DatasetError before all others."""
        known = [each.name for each in self.columns.inputs] if self.columns else self.inputs or ()
        names = [*self.targets, *([self.picture] if self.picture else known)]
        names += (self.categories or ()) if split == "train" else ()
        how = self.separator, self.encoding, lambda head: check_names(head, names)
        return read_rows(self._path(split, root), *how)

    def _found(self, rows: Rows) -> Columns:
        """The columns by the training file: the targets first."""
        kind = self.kind or "class"
        targets = tuple(self.targets)
        classes = self._classes(rows, targets[0]) if kind == "class" else targets
        if self.picture is not None:
            return Columns((), targets, kind, classes, self.missing)
        if self.inputs is None and "" in rows.names:
            raise DatasetError(
                f"{rows.path}: column {rows.names.index('') + 1} has no name; give it one, or list "
                "the inputs in the config"
            )
        names = self.inputs or [name for name in rows.names if name not in targets]
        if not names:
            raise DatasetError(f"{rows.path}: has no column beside the targets to learn from")
        inputs = tuple(find_column(rows, name, name in (self.categories or ())) for name in names)
        return Columns(inputs, targets, kind, classes, self.missing, self.unknown)

    def _classes(self, rows: Rows, name: str) -> tuple[str, ...]:
        """The texts of the target's column, numbers by value."""
        cells = {cell for cell in rows.column(name) if not is_missing(cell)}
        values = [number(cell, rows.comma) for cell in cells]
        few = len(cells) <= _FEW and all(v is None or v.is_integer() for v in values)
        if self.kind is None and None not in values and not few:
            raise DatasetError(
                f"{rows.path}: the target '{name}' has {len(cells):,} different numbers; set kind: "
                "numbers beside 'train' to predict them, or kind: class if each is a class"
            )
        if not 2 <= len(cells) <= _MOST_CLASSES:
            raise DatasetError(
                f"{rows.path}: the target '{name}' has {len(cells):,} different "
                f"{'values' if len(cells) != 1 else 'value'}; classes are from 2 to {_MOST_CLASSES}"
            )
        if wrong := [cell for cell in cells if not cell.isprintable()]:
            raise DatasetError(
                f"{rows.path}: column '{name}': {min(wrong)!a} has control characters and cannot "
                "name a class; correct it"
            )
        return tuple(sorted(cells, key=natural))

    def _set(self, split: Split, rows: Rows, columns: Columns) -> ImageSet:
        names = [self.picture] if self.picture else [column.name for column in columns.inputs]
        check_names(rows, names)
        given = (columns.kind, columns.targets, columns.classes, columns.missing)
        labels, answered = labels_of(rows, *given)
        paths: Sequence[str] = ()
        if self.picture is None:
            values, kept = encoded(rows, columns.inputs, columns.missing, columns.unknown)
        else:
            paths = rows.column(self.picture)
            values, kept = np.zeros((len(rows), 0), np.float32), np.array([*map(bool, paths)])
            if not kept.all() and columns.missing != "drop":
                raise gap(rows, int(kept.argmin()), self.picture)
        at = np.flatnonzero(kept & answered)
        if not len(at):
            raise DatasetError(f"{rows.path}: each row lacks a value, so missing: drop leaves none")
        # Of a class, so that a row of another class is known to be the same.
        told = names if columns.kind == "class" else [*names, *columns.targets]
        places = [rows.names.index(name) for name in told]
        texts = ("\0".join([rows.cells[row][place] for place in places]) for row in at.tolist())
        lines = [rows.lines[row] for row in at.tolist()]
        sources = [f"{rows.path}: line {line}" for line in lines]
        if paths:
            sources = [str(rows.path.absolute().parent / paths[row]) for row in at.tolist()]
        images, labels = values[at].reshape(len(at), values.shape[1], 1, 1), labels[at]
        for array in (images, labels):
            array.setflags(write=False)
        return ImageSet(
            f"csv/{split}",
            images,
            labels,
            columns.classes,
            tuple(sources),
            names=tuple(f"line {line}" for line in lines),
            contents=tuple(sha256_bytes(text.encode())[:CONTENT_DIGITS] for text in texts),
            kind=columns.kind,
            columns=columns if self.picture is None else None,
        )


@lru_cache(maxsize=2)
def _read(
    chosen: Csv, root: Path, stamps: tuple[tuple[int, ...], ...]
) -> tuple[Columns, dict[Split, ImageSet]]:
    return chosen.read(root)


def labels_of(
    rows: Rows, kind: Kind, targets: Sequence[str], classes: Sequence[str], missing: Missing
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels by their kind, and which rows have all of them, (M,). Raises DatasetError."""
    if kind == "class":
        what = f"classes trained on ({listed(classes, _NAMED)}); correct it, or leave it out"
        labels: NDArray[Any] = placed(
            rows, targets[0], {name: place for place, name in enumerate(classes)}, what
        )
        gaps = labels[:, None] == MISSING
    else:
        read = answers if kind == "yes_no" else numbers
        found = np.stack([read(rows, name) for name in targets], axis=1)
        gaps, labels = np.isnan(found), found.astype(np.float32)
    if gaps.any() and missing != "drop":
        row, place = np.argwhere(gaps)[0].tolist()
        raise DatasetError(
            f"{rows.at(row, targets[place])}: has no value, and is a target; fill it, or set "
            "missing: drop beside 'train' in the config"
        )
    return labels, np.asarray(~gaps.any(1), np.bool_)


def _held_out(whole: ImageSet, fraction: float, table: Path) -> NDArray[np.bool_]:
    """Which rows are tested on, (M,): about ``fraction``, of each class if there are classes.

    A hash of the row decides, so that equal rows are in one part, and others hardly matter.
    """
    groups = whole.labels if whole.kind == "class" else np.zeros(len(whole), np.int32)
    contents = np.array(whole.contents)
    held = np.zeros(len(whole), np.bool_)
    for group in np.unique(groups):
        own = groups == group
        ordered = np.sort(contents[own])
        last = ordered[max(math.ceil(len(ordered) * fraction) - 1, 0)]
        if last != ordered[-1]:
            held |= own & (contents <= last)
    if not held.any():
        raise DatasetError(
            f"{table}: has too few different rows to hold some "
            "out for testing; name a file of test rows with the key 'test'"
        )
    return held


def _with_pictures(
    rows: ImageSet, table: Path, how: OwnPictures, trained: Callable[[], ImageSet]
) -> ImageSet:
    """``rows``, whose sources are the pictures' paths, with the pictures as images.

    table: the file of the rows; trained: see ``OwnPictures.decoded``. Raises DatasetError that
    names the line of a picture that cannot be read.
    """
    pictures, places = [], []
    for line, source in zip(rows.names, rows.sources, strict=True):
        if os.path.exists(source):
            pictures.append(PictureFile(source, 0, file_stamp(os.stat(source))))
            places.append(f"{table}: {line}: ")
            continue
        text = f"{table}: {line}: there is no picture '{source}'"
        if how.on_error == "stop":
            raise DatasetError(f"{text}; a relative path counts from the folder of the table")
        _LOG.warning("%s: it is left out", text)
    name, folder = rows.name.replace("/", "-"), table.absolute().parent
    found = how.decoded(name, folder, pictures, trained, (), places)
    used = {picture.name for picture in found.used}
    index = np.array([at for at, s in enumerate(rows.sources) if s in used], np.int32)
    rows = rows.taken(index, rows.labels[index], rows.classes)
    contents = found.contents
    if rows.kind != "class":
        # Their targets belong to it, too.
        both = zip(contents, rows.contents, strict=True)
        contents = tuple(sha256_bytes("".join(each).encode())[:CONTENT_DIGITS] for each in both)
    return replace(rows, images=found.images, contents=contents, bits=found.bits)
