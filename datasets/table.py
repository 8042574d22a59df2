"""``table``: samples written in the config itself, such as the truth table of NAND.

A value is stored as one byte, a step on its column's grid: value = byte * scale + shift. A column
can therefore have integers, halves, tenths and so on, up to 255 steps apart, and nothing is
rounded. Both splits are the whole table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np

from ..common.errors import DatasetError
from ..common.records import dataclass
from .download import Downloads
from .image_set import Dataset, DatasetInfo, ImageSet, Split

_MOST_STEPS = 255


@dataclass(frozen=True)
class Table(Dataset):
    about = "the samples are written in the config"
    inputs: Sequence[Sequence[float]] = ()
    targets: Sequence[int] = ()
    classes: Sequence[str] | None = None

    def describe(self, root: Path) -> DatasetInfo:
        """One channel per column: shape (columns, 1, 1).

        Raises DatasetError for values or targets that cannot be stored.
        """
        if not self.inputs or not self.targets:
            raise DatasetError(
                "dataset 'table': needs inputs and targets, which are written in the config"
            )
        grids, count = _grids(self.inputs), len(self.targets)
        return DatasetInfo(
            "table",
            (len(grids), 1, 1),
            self._names(),
            count,
            count,
            scale=tuple(float(step) for _, step in grids),
            shift=tuple(float(low) for low, _ in grids),
        )

    def load(self, split: Split, root: Path, downloads: Downloads) -> ImageSet:
        """The table, in the order in which it is written; ``root`` is not used."""
        info = self.describe(root)
        grids = _grids(self.inputs)
        steps = [
            [int((_exact(x) - low) / step) for x, (low, step) in zip(row, grids, strict=True)]
            for row in self.inputs
        ]
        images = np.array(steps, np.uint8).reshape(-1, *info.shape)
        labels = np.array(self.targets, np.int32)
        images.setflags(write=False)
        labels.setflags(write=False)
        sources = tuple(
            f"row {number}: {', '.join(map(str, row))}" for number, row in enumerate(self.inputs, 1)
        )
        return ImageSet(f"table/{split}", images, labels, info.classes, sources)

    def _names(self) -> tuple[str, ...]:
        """The names that are given, else the numbers from 0 to the largest target, at least two."""
        numbers = map(str, range(max(2, max(self.targets) + 1)))
        names = tuple(numbers if self.classes is None else self.classes)
        for row, target in enumerate(self.targets, 1):
            if not 0 <= target < len(names):
                raise DatasetError(
                    f"dataset 'table', option 'targets': target {target} of row {row} is not the "
                    f"number of a class, 0 to {len(names) - 1}"
                )
        return names


def _grids(inputs: Sequence[Sequence[float]]) -> list[tuple[Fraction, Fraction]]:
    """For each column, its smallest value and the step of its grid."""
    grids = []
    for number, column in enumerate(zip(*inputs, strict=True), 1):
        values = [_exact(value) for value in column]
        low = min(values)
        step = Fraction(0)
        for value in values:
            step = _common(step, value - low)
        steps = (max(values) - low) / step if step else Fraction(0)
        if steps > _MOST_STEPS:
            raise DatasetError(
                f"dataset 'table', option 'inputs': column {number} goes from {float(low):g} to "
                f"{float(max(values)):g} in steps of {float(step):g}: {steps} steps, but at most "
                f"{_MOST_STEPS} can be stored exactly; write its values with fewer digits"
            )
        grids.append((low, step or Fraction(1)))
    return grids


def _exact(value: float) -> Fraction:
    """The decimal number as written, not the nearest binary one."""
    return Fraction(repr(value))


def _common(a: Fraction, b: Fraction) -> Fraction:
    """The greatest common divisor of two fractions."""
    numerator = math.gcd(a.numerator * b.denominator, b.numerator * a.denominator)
    return Fraction(numerator, a.denominator * b.denominator)
