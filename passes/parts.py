"""A batch in parts: gradients are added up, and a section of its own updates the parameters."""

from __future__ import annotations

from dataclasses import replace

from ..graph.graph import Op, Tensor, gradient_of
from ..graph.ops import Accumulate, BatchNorm, Dropout, KeepStatistics, MoveStatistics
from ..optimizers.groups import RATES
from ..optimizers.rules import state_of
from .section import Section

SUM, STATISTICS = "accumulated", "kept_statistics"


def in_parts(
    section: Section, name: str, parts: int, own: int, mean: bool
) -> tuple[Section, Section]:
    """The section of a part, which only adds up gradients, and the update, called ``name``.

    section: the plain one, whose batch is a part. Its steps then count parts, of which this process
    computes ``own``. mean: whether the loss is the mean over a batch, not the sum.
    """
    owners = [m.owner.tensor for m in section.members]
    sums = tuple(state_of(owner, SUM) for owner in owners)
    levels = range(1, Accumulate.levels(own))
    add = Accumulate(
        gradients=tuple(gradient_of(owner, section.name) for owner in owners),
        step=section.step,
        sums=sums,
        pending=tuple(state_of(owner, f"{SUM}.{level}") for level in levels for owner in owners),
        parts=own,
        scale=1.0 / parts if mean else 1.0,
    )
    body = tuple(replace(op, parts=parts) if isinstance(op, Dropout) else op for op in section.body)
    results, after = dict(section.results), (add,) if owners else ()
    counter = Tensor("update.step", (1,), "int64", "state")
    later = {counter.name: counter, RATES: results.pop(RATES)}
    train = replace(section, body=body, results=results, members=(), before=(), after=after)
    # What shared weights and masks read of the gradients are the sums now.
    moved = dict(zip(add.gradients, sums, strict=True))
    moved |= {m.gradient: gradient_of(m.tensor, name) for m in section.members if not m.is_own}
    members = tuple(replace(m, gradient=moved[m.gradient]) for m in section.members)
    before = tuple(op.on(moved) for op in section.before)
    update = replace(section, name=name, batch_size=1, body=(), step=counter, results=later)
    return train, replace(update, members=members, before=before)


def statistics_moved(train: Section, update: Section, parts: int) -> tuple[Section, Section]:
    """Running statistics move with the update, by the values of all parts, in their order."""
    body, keep, move = statistics_left(train.body, train.step, STATISTICS, parts)
    if not keep.values:
        return train, update
    train = replace(train, body=body, before=(keep, *train.before))
    return train, replace(update, body=(move, *update.body))


def statistics_left(
    ops: tuple[Op, ...], step: Tensor, name: str, rows: int
) -> tuple[tuple[Op, ...], KeepStatistics, MoveStatistics]:
    """The operations, where batch norm leaves its running statistics alone, and what moves them.

    The values of a part are kept in its row of ``name``: (rows, numbers of a part). The weight of a
    variance makes that of the batch an unbiased one.
    """
    found: list[Op] = []
    values: list[Tensor] = []
    running: list[Tensor] = []
    momentum: list[float] = []
    weight: list[float] = []
    for op in ops:
        if isinstance(op, BatchNorm) and op.running_mean is not None:
            assert op.running_var is not None
            m, count = op.momentum, op.x.size // op.x.shape[1]
            var = replace(op.mean, name=f"{op.mean.name.removesuffix('mean')}var")
            values += op.mean, var
            running += op.running_mean, op.running_var
            momentum += m, m
            weight += m, m * count / (count - 1)
            op = replace(op, running_mean=None, running_var=None, var=var)
        found.append(op)
    kept = Tensor(name, (rows, sum(value.size for value in values)), "float32", "state")
    keep = KeepStatistics(values=tuple(values), step=step, kept=kept, parts=rows)
    move = MoveStatistics(
        kept=kept, running=tuple(running), momentum=tuple(momentum), weight=tuple(weight)
    )
    return tuple(found), keep, move
