"""Pictures and reports are what they were; ``write_goldens`` stores a deliberate change."""

from __future__ import annotations

import pytest

from ..support.described import differences
from .write_goldens import GOLDENS, STORED


@pytest.mark.parametrize("name", GOLDENS)
def test_it_is_what_is_stored(name: str) -> None:
    stored = (STORED / f"{name}.txt").read_text("utf-8")
    told = differences(GOLDENS[name](), stored)
    command = f"python -m tests.reports.write_goldens {name}"
    assert told == [], f"if this is meant: {command}"


def test_nothing_is_stored_that_is_not_compared() -> None:
    assert {file.stem for file in STORED.iterdir()} == GOLDENS.keys()
