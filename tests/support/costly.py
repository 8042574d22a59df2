"""Which tests cost much: what ``-m "not slow"`` leaves out, and what is done with ``--long`` alone.

By file below tests/, or by function of a file. ``slow.txt`` names those whose cases take more than
about 0.6 s of a core together. What is left covers most lines of the product in little time.
``turns.txt`` names those that draw their cases, or compile a kernel for each: with ``--turn`` a run
makes one case in TURNS, and those with the next numbers make the others. What is the only test of a
promise, such as equal bits after a resume, does not belong there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from zlib import crc32

import pytest

TESTS = Path(__file__).parents[1]
SLOW = frozenset(TESTS.joinpath("support", "slow.txt").read_text("utf-8").split())
# A function of so many cases or more is quick in one of EACH, which crc32 draws.
MANY, EACH = 24, 8
# What they draw by seed is alike: the first of it finds most.
DRAWN = frozenset(
    (
        "backends/cuda/fused/test_dense_update_emulated.py",
        "backends/cuda/fused/test_tensor_conv_emulated.py",
        "backends/cuda/fused/test_tensor_dense_emulated.py",
    )
)
LONG = frozenset(("cli/test_kills.py", "faults/test_power_loss.py"))
BY_TURNS = frozenset(TESTS.joinpath("support", "turns.txt").read_text("utf-8").split())
TURNS = 3


def _names(item: pytest.Item) -> tuple[str, str]:
    file = item.path.relative_to(TESTS).as_posix()
    return file, f"{file}::{getattr(item, 'originalname', item.name)}"


def has_turn(item: pytest.Item, turn: int) -> bool:
    """Whether a run with this number makes the test."""
    return not (BY_TURNS & {*_names(item)} and (crc32(item.name.encode()) - turn) % TURNS)


def marks(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, tuple[str, ...]]]:
    """Each test with the marks that it gets."""
    every = [_names(item) for item in items]
    cases = Counter(function for _, function in every)
    for item, names in zip(items, every, strict=True):
        drawn = getattr(item, "callspec", None)
        seed = drawn.params.get("seed", 0) if drawn is not None and DRAWN & {*names} else 0
        alike = cases[names[1]] >= MANY and crc32(f"{names[0]}::{item.name}".encode()) % EACH
        if seed or LONG & {*names}:
            yield item, ("slow", "long")
        elif alike or (SLOW | DRAWN) & {*names}:
            yield item, ("slow",)
