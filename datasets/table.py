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
from ..common.targets import Kind, check_targets
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

    def describe(self, root: Path) -> DatasetInfo:
        """One channel per column: shape (columns, 1, 1).

        Raises DatasetError for values or targets that cannot be stored.
        """
        if not self.inputs or not self.targets:
            raise DatasetError(
                "dataset 'table': needs inputs and targets, which are written in the config"
            )
        grids, count = _grids(self.inputs), len(self.targets)
        names, labels = self._names(), self._labels()
        if self._kind != "class":
            check_targets("dataset 'table', option 'targets'", self._kind, labels, len(names))
        facts = ("table", (len(self.inputs[0]), 1, 1), names, count, count)
        if grids is None:
            return DatasetInfo(*facts, floats=True, kind=self._kind)
        return DatasetInfo(
            *facts,
            scale=tuple(float(step) for _, step in grids),
            shift=tuple(float(low) for low, _ in grids),
            kind=self._kind,
        )

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The table, in the order in which it is written; ``root`` is not used."""
        info = self.describe(root)
        grids = _grids(self.inputs)
        if grids is None:
            images = np.array(self.inputs, np.float32)
        else:
            pairs = (zip(row, grids, strict=True) for row in self.inputs)
            steps = [[int((_exact(x) - low) / step) for x, (low, step) in row] for row in pairs]
            images = np.array(steps, np.uint8)
        images = images.reshape(-1, *info.shape)
        labels = self._labels()
        images.setflags(write=False)
        labels.setflags(write=False)
        sources = tuple(
            f"row {number}: {', '.join(map(str, row))}" for number, row in enumerate(self.inputs, 1)
        )
        return ImageSet(f"table/{split}", images, labels, info.classes, sources, kind=self._kind)

    @property
    def _kind(self) -> Kind:
        return self.kind or "class"

    def _labels(self) -> NDArray[Any]:
        """(M,) int32, or (M, K) float32; a number alone is a row of one."""
        if self._kind == "class":
            wrong = [each for each in self.targets if not isinstance(each, int)]
            if wrong:
                raise DatasetError(
                    f"dataset 'table', option 'targets': {wrong[0]} is not the number of a class; "
                    "'kind: numbers' takes any"
                )
            return np.array(self.targets, np.int32)
        rows = [each if isinstance(each, Sequence) else (each,) for each in self.targets]
        lengths = {*map(len, rows)}
        if len(lengths) > 1:
            raise DatasetError(
                "dataset 'table', option 'targets': has rows of different lengths: "
                f"{min(lengths)} and {max(lengths)}"
            )
        return np.array(rows, np.float32)

    def _names(self) -> tuple[str, ...]:
        """The names that are given, else numbers from 0: of classes, to the largest target."""
        labels = self._labels()
        count = labels.shape[1] if self._kind != "class" else max(2, int(labels.max()) + 1)
        names = tuple(map(str, range(count)) if self.classes is None else self.classes)
        for row, target in enumerate(labels if self._kind == "class" else (), 1):
            if not 0 <= target < len(names):
                raise DatasetError(
                    f"dataset 'table', option 'targets': target {target} of row {row} is not the "
                    f"number of a class, 0 to {len(names) - 1}"
                )
        return names


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
