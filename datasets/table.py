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
from typing import Any

import numpy as np

from ..common.errors import DatasetError
from .download import Downloads
from .image_set import DatasetInfo, ImageSet, Options, Source, Split, check_options

_MOST_STEPS = 255
_OPTIONS = ("inputs", "targets", "classes")


def describe(options: Options, root: Path) -> DatasetInfo:
    """One channel per column: shape (columns, 1, 1). Raises DatasetError for an invalid table."""
    inputs, targets = _rows(options)
    grids = _grids(inputs)
    return DatasetInfo(
        "table",
        (len(grids), 1, 1),
        _classes(options, targets),
        len(targets),
        len(targets),
        scale=tuple(float(step) for _, step in grids),
        shift=tuple(float(low) for low, _ in grids),
    )


def load(split: Split, root: Path, options: Options, downloads: Downloads) -> ImageSet:
    """The table, in the order in which it is written; ``root`` is not used."""
    info = describe(options, root)
    inputs, targets = _rows(options)
    grids = _grids(inputs)
    steps = [
        [int((_exact(value) - low) / step) for value, (low, step) in zip(row, grids, strict=True)]
        for row in inputs
    ]
    images = np.array(steps, np.uint8).reshape(-1, *info.shape)
    labels = np.array(targets, np.int32)
    images.setflags(write=False)
    labels.setflags(write=False)
    return ImageSet(f"table/{split}", images, labels, info.classes)


def _rows(options: Options) -> tuple[Sequence[Sequence[float]], Sequence[int]]:
    check_options("table", options, _OPTIONS)
    inputs: Any = options.get("inputs", ())
    targets: Any = options.get("targets", ())
    if not inputs or not targets:
        raise DatasetError(
            "dataset 'table': needs inputs and targets, which are written in the config"
        )
    widths = sorted({len(row) for row in inputs})
    if len(widths) > 1 or widths[0] == 0:
        raise DatasetError(
            "dataset 'table', option 'inputs': expects rows of the same length, "
            f"got rows of {' and '.join(map(str, widths))} values"
        )
    if len(inputs) != len(targets):
        raise DatasetError(
            f"dataset 'table': has {len(inputs)} rows of inputs, but {len(targets)} targets; "
            "give one target per row"
        )
    return inputs, targets


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


def _classes(options: Options, targets: Sequence[int]) -> tuple[str, ...]:
    """The names that are given, else the numbers from 0 to the largest target, at least two."""
    named: Any = options.get("classes")
    names = tuple(map(str, range(max(2, max(targets) + 1)))) if named is None else tuple(named)
    for row, target in enumerate(targets, 1):
        if not 0 <= target < len(names):
            raise DatasetError(
                f"dataset 'table', option 'targets': target {target} of row {row} is not the "
                f"number of a class, 0 to {len(names) - 1}"
            )
    return names


SOURCE = Source(describe, load, about="the samples are written in the config")
