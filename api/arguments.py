"""What a program passes in: a value that no argument takes is refused by the argument's name."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from .backends.select import Device
from .common.errors import UsageError
from .configs.schema.dataset_base import LARGEST_SIDE
from .configs.suggest import expected
from .training.augmentation import TEST_TIME


def path_text(name: str, value: Any) -> str:
    """The text of a path. Raises TypeError for anything else."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name}: expected a str or a pathlib.Path, got {kind(value)}")
    return os.fspath(value)


def path_or_none(name: str, value: Any) -> Path | None:
    """A path that may be left out. Raises TypeError."""
    return None if value is None else Path(path_text(name, value))


def paths(name: str, value: Any) -> list[str]:
    """The texts of several paths, or of one. Raises TypeError."""
    if isinstance(value, (str, os.PathLike)):
        return [path_text(name, value)]
    if not isinstance(value, Iterable):
        raise TypeError(f"{name}: expected paths in a list, got {kind(value)}")
    return [path_text(name, each) for each in value]


def word(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise UsageError for what is not one of these words."""
    words = list(known)
    if value not in words:
        text = value if isinstance(value, str) else ""
        raise UsageError(f"{name}: {expected(words, text, repr(value))}")


def whole(name: str, value: Any) -> int | None:
    """A whole number, also one of NumPy's, or None. Raises TypeError."""
    try:
        return None if value is None else operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected a whole number, got {kind(value)}") from None


def machine(device: Any, threads: Any) -> tuple[Device, int | None]:
    """A device and a number of threads. Raises UsageError, TypeError."""
    word("device", device, get_args(Device))
    count = whole("threads", threads)
    if count is not None and count < 1:
        raise UsageError(f"threads: expected a whole number of at least 1 (got {count})")
    return device, count


def views(tta: Any) -> None:
    """Raise UsageError if ``tta`` names no averaging over views; None stands for the config's."""
    if tta is not None:
        word("tta", tta, TEST_TIME)


def picture_size(value: Any) -> tuple[int, int] | None:
    """(height, width) of a pair, of one number for both, or of "48x64"; None. Raises UsageError."""
    if value is None:
        return None
    given = value.split("x") if isinstance(value, str) else value
    given = [*given] if isinstance(given, (tuple, list)) else [given]
    sides = [int(s) if str(s).isdecimal() and len(str(s)) < 5 else 0 for s in given]
    if len(sides) in (1, 2) and min(sides) > 0 and max(sides) <= LARGEST_SIDE:
        return sides[0], sides[-1]
    raise UsageError(
        f"--size: expected pixels of a side, as in 64, or height x width, as in 48x64, of at most "
        f"{LARGEST_SIDE} (got {value})"
    )


def assigned(overrides: Any) -> None:
    """Raise TypeError for what is neither a mapping from keys to values nor a list of texts."""
    wrong = ""
    if isinstance(overrides, Mapping):
        odd = [key for key in overrides if not isinstance(key, str)]
        wrong = f"the key {odd[0]!r}" if odd else ""
    elif isinstance(overrides, str) or not isinstance(overrides, Sequence):
        wrong = kind(overrides)
    else:
        odd = [each for each in overrides if not isinstance(each, str)]
        wrong = f"{odd[0]!r} in it" if odd else ""
    if wrong:
        raise TypeError(
            'overrides: expected a dict, as in {"optimizer.lr": 0.05}, or a list of texts, as in '
            f'["optimizer.lr=0.05"]; got {wrong}'
        )


def kind(value: Any) -> str:
    """The name of a value's type."""
    return type(value).__name__
