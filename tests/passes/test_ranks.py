"""Ranks that share out the parts of a batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.graph.graph import Tensor
from dnnstack.graph.ops import (
    Accumulate,
    AddMetrics,
    AllGather,
    AllReduce,
    KeepMetrics,
    Mask,
    SkipParts,
)
from dnnstack.passes.parts import in_parts, statistics_moved
from dnnstack.passes.ranks import added_up, in_pieces, over_ranks, pieces
from dnnstack.passes.section import Section

from ..support.stored import cases
from .plain import WEIGHTS, kept, parameter, plain

SUMS = tuple(kept("accumulated", w) for w in WEIGHTS)


def parted(parts: int) -> tuple[Section, Section]:
    """What one of two ranks computes."""
    return in_parts(plain(), "update", parts, parts // 2, mean=True)


@pytest.mark.parametrize("moves", [False, True])
def test_each_computes_its_share_and_metrics_come_together(moves: bool) -> None:
    before = statistics_moved(*parted(8), 8) if moves else parted(8)
    train, update = over_ranks(*before, 8, 2)
    sums, step = before[0].results["sums"], before[0].step
    rows = Tensor("kept_metrics", (8, 3), "float64", "state")
    every = Tensor("all.sums", (3,), "float64", sums.role)
    assert train.before == (
        *before[0].before,
        KeepMetrics(step=step, sums=sums, kept=rows, parts=8),
    )
    assert train.results == {**before[0].results, "sums": every}
    assert (train.after, train.body) == (before[0].after, before[0].body)
    statistics = Tensor("kept_statistics", (8, 4), "float32", "state")
    assert update.body == (
        AllGather(rows=rows, ranks=2),
        AddMetrics(kept=rows, sums=every),
        SkipParts(step=step, parts=4),
        *([AllGather(rows=statistics, ranks=2)] if moves else []),
        *before[1].body,
    )
    assert (update.before, update.members) == (before[1].before, before[1].members)


def test_gradients_are_added_up_before_all_else() -> None:
    mask = Mask(masks=(kept("mask", WEIGHTS[0]),), values=(SUMS[0],))
    update = replace(parted(2)[1], before=(mask,))
    found = added_up(update, frozenset(WEIGHTS[1:]), 2)
    assert found.before == (AllReduce(values=SUMS[1:], ranks=2), mask)
    assert added_up(update, frozenset(), 2) == update


def test_all_but_the_last_piece_are_added_up_in_the_section_of_a_part() -> None:
    train, update = over_ranks(*parted(2), 2, 2)
    update = added_up(update, frozenset(WEIGHTS), 2)
    early, late = in_pieces(train, update, 2)
    # 8, 2, 2, 16 and 2 numbers: half of them are those of dense_1.
    assert early.after == (*train.after, AllReduce(values=SUMS[3:], ranks=2))
    assert late.before == (AllReduce(values=SUMS[:3], ranks=2),)
    assert (early.before, late.body) == (train.before, update.body)
    assert in_pieces(train, update, 1) == (train, update)


def test_there_are_no_pieces_where_a_rank_has_several_parts_or_nothing_is_added_up() -> None:
    train, update = over_ranks(*parted(4), 4, 2)
    assert isinstance(train.after[0], Accumulate)
    update = added_up(update, frozenset(WEIGHTS), 2)
    assert in_pieces(train, update, 2) == (train, update)
    train, update = over_ranks(*parted(2), 2, 2)
    assert in_pieces(train, update, 2) == (train, update)
    mask = Mask(masks=(kept("mask", WEIGHTS[0]),), values=(SUMS[0],))
    masked = replace(update, before=(mask,))
    assert in_pieces(train, masked, 2) == (train, masked)


def test_what_ranks_have_alone_is_in_no_piece() -> None:
    train, update = over_ranks(*parted(2), 2, 2)
    update = added_up(update, frozenset(WEIGHTS[:4]), 2)
    early, late = in_pieces(train, update, 2)
    assert early.after[1:] == (AllReduce(values=(SUMS[3],), ranks=2),)
    assert late.before == (AllReduce(values=SUMS[:3], ranks=2),)


@pytest.mark.parametrize(
    ("sizes", "count", "wanted"), cases(__file__, "pieces_are_of_about_equal_size")
)
def test_pieces_are_of_about_equal_size(
    sizes: tuple[int, ...], count: int, wanted: list[list[int]]
) -> None:
    tensors = [parameter(f"w{i}", size) for i, size in enumerate(sizes)]
    found = pieces(tensors, count)
    assert [[tensors.index(t) for t in piece] for piece in found] == wanted
