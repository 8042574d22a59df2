"""Clipping by the norm of all gradients, of which ranks may have their own."""

from __future__ import annotations

from dataclasses import replace

from dnnstack.graph.ops import ClipByNorm, GatherRows, GlobalNorm, JoinNorms, Mask
from dnnstack.optimizers.groups import Group
from dnnstack.passes.clip import clipped
from dnnstack.passes.section import within

from .plain import WEIGHTS, grad, kept, number, plain

GRADIENTS = tuple(map(grad, WEIGHTS))
NORM = number("gradient_norm")
CLIP = ClipByNorm(norm=NORM, gradients=GRADIENTS, max_norm=0.5)


def test_one_norm_of_all() -> None:
    section = plain()
    found = clipped(section, 0.5)
    assert found.before == (GlobalNorm(gradients=GRADIENTS, norm=NORM), CLIP)
    assert (found.body, found.members, found.after) == (section.body, section.members, ())


def test_it_sees_what_became_of_the_gradients_before() -> None:
    mask = Mask(masks=(kept("mask", WEIGHTS[0]),), values=(GRADIENTS[0],))
    assert clipped(replace(plain(), before=(mask,)), 0.5).before[0] == mask


def test_the_norms_of_what_ranks_have_alone_are_joined() -> None:
    own, every = number("gradient_norm.own"), number("gradient_norm.ranks", 3)
    common = number("gradient_norm.common")
    assert clipped(plain(), 0.5, frozenset(WEIGHTS[:2]), 3).before == (
        GlobalNorm(gradients=GRADIENTS[:2], norm=own),
        GatherRows(x=own, y=every, ranks=3),
        GlobalNorm(gradients=GRADIENTS[2:], norm=common),
        JoinNorms(norms=every, own=common, norm=NORM),
        CLIP,
    )
    assert clipped(plain(), 0.5, frozenset(WEIGHTS), 3).before == (
        GlobalNorm(gradients=GRADIENTS, norm=own),
        GatherRows(x=own, y=every, ranks=3),
        JoinNorms(norms=every, own=None, norm=NORM),
        CLIP,
    )


def test_nothing_is_trained() -> None:
    section = within(plain((Group(freeze_until=1.0),)), 0)
    assert clipped(section, 0.5) == section
