"""Averages of what is trained."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.graph.ops import Average, Mask
from dnnstack.passes.average import EMA, LOOKAHEAD, SWA, averaged, evaluated
from dnnstack.passes.section import lowered

from .plain import WEIGHTS, kept, plain


@pytest.mark.parametrize("kind", [EMA, SWA, LOOKAHEAD])
def test_averages_move_behind_the_updates(kind: str) -> None:
    mask = Mask(masks=(kept("mask", WEIGHTS[0]),), values=(WEIGHTS[0],))
    section = replace(plain(), after=(mask,))
    found = averaged(section, kind, WEIGHTS[1:3])
    decays = section.table(f"{kind}.decays")
    assert found.after == (
        mask,
        Average(
            decays=decays,
            step=section.step,
            averages=tuple(kept(kind, w) for w in WEIGHTS[1:3]),
            values=WEIGHTS[1:3],
            pull=kind == "lookahead",
        ),
    )
    assert found.results == {**section.results, f"{kind}.decays": decays}
    assert (found.before, found.body, found.members) == ((), section.body, section.members)


def test_there_may_be_nothing_to_average() -> None:
    assert averaged(plain(), EMA, ()) == plain()


def test_evaluation_takes_ema_and_swa_alone() -> None:
    slow = averaged(plain(), LOOKAHEAD, WEIGHTS)
    assert evaluated([lowered(slow)]) == {}
    for kind in (EMA, SWA):
        graph = lowered(averaged(slow, kind, WEIGHTS))
        assert evaluated([lowered(slow), graph]) == {w: kept(kind, w) for w in WEIGHTS}
