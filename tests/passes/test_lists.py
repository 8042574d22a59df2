"""All concerns together: the lists are those from before the training was composed of passes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ..support.mixtures import digest, lines

KEPT = json.loads(Path(__file__).with_name("lists.json").read_text("utf-8"))
# What a mixture of concerns has to have in it, in so many of the drawn trainings at least.
MARKS = {
    "AllReduce: ": 20,
    "Accumulate: ": 30,
    "KeepStatistics: ": 20,
    "SkipParts: ": 15,
    "ClipByNorm: ": 20,
    "JoinNorms: ": 2,
    "Mask: ": 10,
    "SumShared: ": 2,
    "MuonUpdate: ": 3,
    "ExchangeUnits: ": 3,
    "HaloExchange: ": 5,
    "ema/": 5,
    "swa/": 10,
    "lookahead/": 10,
    "renew.step": 5,
    "train-": 20,
    "rates.0": 5,
    "Error: ": 5,
}


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
