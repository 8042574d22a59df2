"""Ranks: processes that each compute some of the parts of every batch, and add up what they have.

The sums are taken in a fixed binary tree, so that the bits do not depend on how many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ..graph import ops
from ..graph.graph import Op, Tensor
from ..optimizers.rules import state_of
from .parts import SUM
from .section import Section

METRICS = "kept_metrics"


def over_ranks(train: Section, update: Section, parts: int, ranks: int) -> tuple[Section, Section]:
    """The update brings together the metrics of all ranks, whose ``sums`` are the result then.

    Each computes its share of the parts. Running statistics come together too, if they move with
    the update.
    """
    sums = train.results["sums"]
    rows = Tensor(METRICS, (parts, *sums.shape), "float64", "state")
    every = replace(sums, name="all.sums", section="")
    keep = ops.KeepMetrics(step=train.step, sums=sums, kept=rows, parts=parts)
    results = {**train.results, "sums": every}
    train = replace(train, results=results, before=(*train.before, keep))
    gathered: list[Op] = [
        ops.AllGather(rows=rows, ranks=ranks),
        ops.AddMetrics(kept=rows, sums=every),
        ops.SkipParts(step=train.step, parts=parts - parts // ranks),
    ]
    moves = (op for op in update.body if isinstance(op, ops.MoveStatistics))
    gathered += (ops.AllGather(rows=op.kept, ranks=ranks) for op in moves)
    return train, replace(update, body=(*gathered, *update.body))


def added_up(update: Section, owners: Collection[Tensor], ranks: int) -> Section:
    """First of all, what so many ranks have of the gradients of these parameters is added up."""
    every = (m.owner.tensor for m in update.members)
    values = tuple(state_of(owner, SUM) for owner in every if owner in owners)
    if not values:
        return update
    return replace(update, before=(ops.AllReduce(values=values, ranks=ranks), *update.before))


def in_pieces(train: Section, update: Section, buckets: int) -> tuple[Section, Section]:
    """All but the last piece of the sum over ranks are added up in the section of a part.

    They are of about equal size, the first one that of the last layers, whose gradients come first.
    Nothing changes where each rank computes several parts.
    """
    add = next((op for op in train.after if isinstance(op, ops.Accumulate) and op.parts == 1), None)
    whole = next((op for op in update.before if isinstance(op, ops.AllReduce)), None)
    if add is None or whole is None:
        return train, update
    alike = [tensor for tensor in add.sums if tensor in whole.values]
    early = [tuple(piece) for piece in pieces(alike, buckets)[:-1]]
    gone = {tensor for piece in early for tensor in piece}
    late = replace(whole, values=tuple(tensor for tensor in whole.values if tensor not in gone))
    sooner = (ops.AllReduce(values=piece, ranks=whole.ranks) for piece in early)
    return (
        replace(train, after=(*train.after, *sooner)),
        replace(update, before=tuple(late if op is whole else op for op in update.before)),
    )


def pieces(tensors: Sequence[Tensor], count: int) -> list[list[Tensor]]:
    """At most ``count`` pieces of about equal size, from the last tensor to the first."""
    whole, done, found = sum(tensor.size for tensor in tensors), 0, [[tensors[-1]]]
    for tensor in reversed(tensors[:-1]):
        done += found[-1][0].size
        if done * count >= whole * len(found) and len(found) < count:
            found.append([])
        found[-1].insert(0, tensor)
    return found
