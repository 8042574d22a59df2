"""All concerns together: the lists are those from before the training was composed of passes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ..support.mixtures import digest, lines
from ..support.stored import cases

KEPT = json.loads(Path(__file__).with_name("lists.json").read_text("utf-8"))
# What a mixture of concerns has to have in it, in so many of the drawn trainings at least.
MARKS = cases(__file__, "marks")


@pytest.mark.parametrize("seed", KEPT)
def test_sections_are_made_of_the_same_operations(seed: str) -> None:
    assert digest(int(seed)) == KEPT[seed]


def test_the_mixtures_have_all_concerns_in_them() -> None:
    found = Counter(
        mark
        for seed in KEPT
        for text in ("\n".join(lines(int(seed))),)
        for mark in MARKS
        if mark in text
    )
    assert {mark: found[mark] for mark, least in MARKS.items() if found[mark] < least} == {}
