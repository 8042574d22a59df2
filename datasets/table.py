"""``table``: samples written in the config itself, such as the truth table of NAND.

A value is stored as one byte, a step on its column's grid: value = byte * scale + shift. A column
can therefore have integers, halves, tenths and so on, up to 255 steps apart, and nothing is
rounded. Other tables are stored as float32. Both splits are the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..common.errors import DatasetError
from ..common.records import dataclass
from ..common.targets import Kind
from .arrays import as_targets
from .download import Downloads
from .image_set import Dataset, DatasetInfo, ImageSet, Split

_MOST_STEPS = 255


@dataclass(frozen=True)
class Table(Dataset):
    about = "the samples are written in the config"
    inputs: Sequence[Sequence[float]] = ()
    targets: Sequence[float | Sequence[float]] = ()
    classes: Sequence[str] | None = None
    kind: Kind | None = None
    shape: Sequence[int] | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """One channel per column: shape (columns, 1, 1); or of ``shape``, (C, H, W), in float32.

        Raises DatasetError for values or targets that cannot be stored.
        """
        if not self.inputs or not self.targets:
            raise DatasetError(
                "dataset 'table': needs inputs and targets, which are written in the config"
            )
        columns = len(self.inputs[0])
        channels, height, width = self.shape or (columns, 1, 1)
        if channels * height * width != columns:
            raise DatasetError(
                f"dataset 'table', option 'shape': {channels}x{height}x{width} does not have the "
                f"{columns} values of a row"
            )
        grids, count = self._grids(), len(self.targets)
        _, kind, names = self._targets()
        facts = ("table", (channels, height, width), names, count, count)
        if grids is None:
            return DatasetInfo(*facts, floats=True, kind=kind)
        return DatasetInfo(
            *facts,
            scale=tuple(float(step) for _, step in grids),
            shift=tuple(float(low) for low, _ in grids),
            kind=kind,
        )

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The table, in the order in which it is written; ``root`` is not used."""
        info = self.describe(root)
        grids = self._grids()
        if grids is None:
            images = np.array(self.inputs, np.float32)
        else:
            pairs = (zip(row, grids, strict=True) for row in self.inputs)
            steps = [[int((_exact(x) - low) / step) for x, (low, step) in row] for row in pairs]
            images = np.array(steps, np.uint8)
        images = images.reshape(-1, *info.shape)
        labels, *_ = self._targets()
        images.setflags(write=False)
        labels.setflags(write=False)
        sources = tuple(
            f"row {number}: {', '.join(map(str, row))}" for number, row in enumerate(self.inputs, 1)
        )
        return ImageSet(f"table/{split}", images, labels, info.classes, sources, kind=info.kind)

    def _grids(self) -> list[tuple[Fraction, Fraction]] | None:
        """Those of the columns; of pictures none, for the columns of a channel would differ."""
        return None if self.shape else _grids(self.inputs)

    def _targets(self) -> tuple[NDArray[Any], Kind, tuple[str, ...]]:
        """See ``as_targets``."""
        where = "dataset 'table', option 'targets'"
        try:
            targets = np.array(self.targets)
        except ValueError:
            raise DatasetError(f"{where}: has rows of different lengths") from None
        return as_targets((where, targets), self.kind or "class", self.classes)


def _grids(inputs: Sequence[Sequence[float]]) -> list[tuple[Fraction, Fraction]] | None:
    """For each column, its smallest value and the step of its grid; None if one has too many."""
    grids = []
    for column in zip(*inputs, strict=True):
        values = [_exact(value) for value in column]
        low = min(values)
        step = Fraction(0)
        for value in values:
            step = _common(step, value - low)
        steps = (max(values) - low) / step if step else Fraction(0)
        if steps > _MOST_STEPS:
            return None
        grids.append((low, step or Fraction(1)))
    return grids


def _exact(value: float) -> Fraction:
    """The decimal number as written, not the nearest binary one."""
    return Fraction(repr(value))


def _common(a: Fraction, b: Fraction) -> Fraction:
    """The greatest common divisor of two fractions."""
    numerator = math.gcd(a.numerator * b.denominator, b.numerator * a.denominator)
    return Fraction(numerator, a.denominator * b.denominator)
