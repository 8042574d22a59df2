"""A section with its members, and what the rule makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.graph.graph import Origin
from dnnstack.graph.ops import Advance, Mask, SgdUpdate
from dnnstack.optimizers.groups import Group
from dnnstack.optimizers.sgd import Sgd
from dnnstack.passes.section import Section, begun, lowered, side_by_side, within

from .plain import NAMES, TOTAL, UPDATE, WEIGHTS, grad, kept, plain

PHASES = (Group(names=("conv2d_1.*",), freeze_until=1.0, freeze_after=2.0),)


def names(section: Section) -> list[str]:
    return [member.tensor.name for member in section.members]


def test_members_are_what_is_trained_in_the_order_of_the_layers() -> None:
    section = plain((Group(names=("dense_1.bias",), freeze_after=0.0),))
    assert names(section) == [*NAMES[:-1]]
    assert [member.gradient for member in section.members] == [*map(grad, WEIGHTS[:-1])]
    assert all(member.is_own for member in section.members)
    assert section.results["rates"] == section.table("rates")
    assert section.table("rates").shape == (TOTAL,)
    assert {op.origin[0].phase for op in section.body} == {"data", "forward", "loss", "backward"}


@pytest.mark.parametrize(("first", "trains"), [(1, False), (2, True), (3, True), (4, False)])
def test_a_stretch_trains_its_members_alone(first: int, trains: bool) -> None:
    section = within(plain(PHASES), first)
    assert names(section) == [*NAMES[not trains :]]


@pytest.mark.parametrize(("first", "has"), [(1, False), (2, True), (4, True)])
def test_what_has_begun_counts_when_it_has_ended(first: int, has: bool) -> None:
    assert begun(plain(PHASES), first) == WEIGHTS[not has :]


def test_members_of_one_rule_and_table_lie_together_and_what_ranks_split_behind() -> None:
    groups = (Group(names=("batch_norm_1.weight", "dense_1.bias"), rates="rates.0"),)
    section = plain(groups)
    conv, scale, shift, weight, bias = NAMES
    assert names(side_by_side(section)) == [conv, shift, weight, scale, bias]
    split = frozenset(WEIGHTS[:2])
    assert names(side_by_side(section, split)) == [shift, weight, conv, bias, scale]


def test_the_rule_is_put_in_last() -> None:
    groups = (Group(names=("conv2d_1.*",), rates="rates.0", lr_factor=2.0, freeze_until=1.0),)
    section = plain(groups, Sgd(momentum=0.9, weight_decay=0.1))
    mask = kept("mask", WEIGHTS[0])
    before = Mask(masks=(mask,), values=(grad(WEIGHTS[0]),))
    after = Mask(masks=(mask,), values=(WEIGHTS[0],))
    graph = lowered(replace(section, before=(before,), after=(after,)))
    count = len(section.body)
    # Nothing needs the gradient of the pictures.
    body = [op for op in section.body if op.writes()[0].name != "conv2d_1.dx"]
    assert graph.ops[: count - 1] == body

    def update(at: slice, table: str, **more: object) -> SgdUpdate:
        return SgdUpdate(
            gradients=tuple(map(grad, WEIGHTS[at])),
            rates=section.table(table),
            step=section.step,
            parameters=WEIGHTS[at],
            weight_decay=(0.1,) * len(WEIGHTS[at]),
            buffers=tuple(kept("momentum", w) for w in WEIGHTS[at]),
            momentum=0.9,
            origin=UPDATE,
            **more,
        )

    assert graph.ops[count - 1 :] == [
        replace(before, origin=UPDATE),
        update(slice(1), "rates.0", lr_factor=(2.0,)),
        update(slice(1, None), "rates"),
        replace(after, origin=UPDATE),
        Advance(step=section.step, origin=UPDATE),
    ]
    assert graph.results == {**section.results, "rates.0": section.table("rates.0")}
    assert (graph.name, graph.batch_size, graph.training) == ("train", 4, True)


def test_operations_keep_the_origin_that_they_have() -> None:
    origin = (Origin("elsewhere", "update"),)
    mask = Mask(masks=(kept("mask", WEIGHTS[0]),), values=(WEIGHTS[0],), origin=origin)
    assert lowered(replace(plain(), after=(mask,))).ops[-2].origin == origin
