"""Which tests cost much: what ``-m "not slow"`` leaves out, and what is done with ``--long`` alone.

By file below tests/, or by function of a file. ``slow.txt`` names those whose cases take more than
about 0.6 s of a core together. What is left covers most lines of the product in little time.
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


def marks(items: Sequence[pytest.Item]) -> Iterator[tuple[pytest.Item, tuple[str, ...]]]:
    """Each test with the marks that it gets."""
    files = [item.path.relative_to(TESTS).as_posix() for item in items]
    functions = [
        f"{file}::{getattr(item, 'originalname', item.name)}"
        for file, item in zip(files, items, strict=True)
    ]
    cases = Counter(functions)
    for item, *names in zip(items, files, functions, strict=True):
        drawn = getattr(item, "callspec", None)
        seed = drawn.params.get("seed", 0) if drawn is not None and DRAWN & {*names} else 0
        alike = cases[names[1]] >= MANY and crc32(f"{names[0]}::{item.name}".encode()) % EACH
        if seed or LONG & {*names}:
            yield item, ("slow", "long")
        elif alike or (SLOW | DRAWN) & {*names}:
            yield item, ("slow",)
