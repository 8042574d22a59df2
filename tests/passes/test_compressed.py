"""Pruned and shared weights."""

from __future__ import annotations

from dataclasses import replace

from dnnstack.graph.ops import Mask, ShareWeights, SumShared
from dnnstack.optimizers.groups import Group
from dnnstack.optimizers.muon import Muon
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.prune import masked
from dnnstack.passes.section import within
from dnnstack.passes.share import shared

from .plain import WEIGHTS, grad, kept, parameter, plain

CONV, _, _, DENSE, BIAS = WEIGHTS


def masks(*of: int) -> tuple[Mask, Mask]:
    found, weights = tuple(kept("mask", WEIGHTS[i]) for i in of), tuple(WEIGHTS[i] for i in of)
    before = Mask(masks=found, values=tuple(map(grad, weights)))
    return before, Mask(masks=found, values=weights)


def test_masks_of_gradients_and_weights() -> None:
    found = masked(plain(), ("*.weight", "dense_1.bias"))
    # A pattern is about no factors of channels.
    before, after = masks(0, 3, 4)
    assert (found.before, found.after) == ((before,), (after,))
    assert found.members == plain().members
    assert masked(plain(), ()) == plain() == masked(plain(), ("x",))


def test_what_is_not_trained_has_no_mask() -> None:
    section = within(plain((Group(names=("dense_1.*",), freeze_until=1.0),)), 0)
    before, after = masks(0)
    found = masked(section, ("*.weight",))
    assert (found.before, found.after) == ((before,), (after,))


def test_centroids_are_trained_in_place_of_weights() -> None:
    found = shared(plain(), {"dense_1.weight": 3, "*.weight": 2, "x": 1})
    first, second = (
        parameter("centroids/conv2d_1.weight", 4),
        parameter(f"centroids/{DENSE.name}", 8),
    )
    codes = kept("code", CONV), kept("code", DENSE)
    sums = grad(first), grad(second)
    assert found.before == (SumShared(gradients=(grad(CONV), grad(DENSE)), codes=codes, sums=sums),)
    assert found.after == (
        ShareWeights(codes=codes, centroids=(first, second), parameters=(CONV, DENSE)),
    )
    assert [m.tensor for m in found.members] == [first, *WEIGHTS[1:3], second, BIAS]
    assert [m.owner.tensor for m in found.members] == [*WEIGHTS]
    assert [m.gradient for m in found.members] == [*map(grad, (first, *WEIGHTS[1:3], second, BIAS))]
    assert [m.is_own for m in found.members] == [False, True, True, False, True]
    assert shared(plain(), {"x": 1}) == plain()


def test_the_rule_says_which_of_its_rules_moves_centroids() -> None:
    section = plain(rule=Muon(Sgd(momentum=0.5), rest_factor=0.5))
    assert [m.one.rule.kind for m in section.members] == ["muon", *["sgd"] * 4]
    found = shared(section, {"conv2d_1.weight": 2})
    assert {m.one.rule.kind for m in found.members} == {"sgd"}
    assert {m.one.lr_factor for m in found.members} == {0.5}


def test_codes_say_what_is_pruned_where_weights_are_shared() -> None:
    both = masked(shared(plain(), {"conv2d_1.weight": 2}), ("*.weight", "dense_1.bias"))
    alone = shared(plain(), {"conv2d_1.weight": 2})
    before, after = masks(3, 4)
    assert both.before == (before, *alone.before)
    assert both.after == (after, *alone.after)
    assert replace(both, before=alone.before, after=alone.after) == alone
