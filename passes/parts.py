"""A batch in parts: gradients are added up, and a section of its own updates the parameters."""

from __future__ import annotations

from dataclasses import replace

from ..common.records import dataclass
from ..graph.graph import Op, Tensor
from ..graph.ops import Accumulate, BatchNorm, Dropout, KeepStatistics, MoveStatistics
from ..optimizers.groups import RATES
from ..optimizers.rules import state_of
from .section import Section, gradient_in

SUM, STATISTICS = "accumulated", "kept_statistics"


@dataclass(frozen=True)
class Moved:
    """running = (1 - momentum) running + weight value, where value is that of a part of a batch."""

    running: Tensor
    value: Tensor
    momentum: float
    weight: float


def in_parts(section: Section, name: str, parts: int, mean: bool) -> tuple[Section, Section]:
    """The section of a part, which only adds up gradients, and the update, called ``name``.

    section: the plain one, whose batch is a part. Its steps then count parts. mean: whether the
    loss is the mean over a batch, not the sum.
    """
    owners = [m.owner.tensor for m in section.members]
    sums = tuple(state_of(owner, SUM) for owner in owners)
    levels = range(1, Accumulate.levels(parts))
    add = Accumulate(
        gradients=tuple(map(section.gradient, owners)),
        step=section.step,
        sums=sums,
        pending=tuple(state_of(owner, f"{SUM}.{level}") for level in levels for owner in owners),
        parts=parts,
        scale=1.0 / parts if mean else 1.0,
    )
    body = tuple(replace(op, parts=parts) if isinstance(op, Dropout) else op for op in section.body)
    results = {key: tensor for key, tensor in section.results.items() if key != RATES}
    train = replace(
        section,
        body=body,
        results=results,
        members=(),
        before=(),
        after=(add,) if owners else (),
    )
    # What shared weights and masks read of the gradients are the sums now.
    replaced = dict(zip(add.gradients, sums, strict=True))
    replaced |= {m.gradient: gradient_in(name, m.tensor) for m in section.members if not m.is_own}
    counter = Tensor("update.step", (1,), "int64", "state")
    update = replace(
        section,
        name=name,
        batch_size=1,
        body=(),
        step=counter,
        results={counter.name: counter, RATES: section.results[RATES]},
        members=tuple(replace(m, gradient=replaced[m.gradient]) for m in section.members),
        before=tuple(op.on(replaced) for op in section.before),
    )
    return train, update


def statistics_moved(train: Section, update: Section, parts: int) -> tuple[Section, Section]:
    """Running statistics move with the update, by the values of all parts, in their order."""
    body, moved = statistics_left(train.body)
    if not moved:
        return train, update
    keep = kept(moved, train.step, STATISTICS, parts)
    move = MoveStatistics(
        kept=keep.kept,
        running=tuple(each.running for each in moved),
        momentum=tuple(each.momentum for each in moved),
        weight=tuple(each.weight for each in moved),
    )
    train = replace(train, body=body, before=(keep, *train.before))
    return train, replace(update, body=(move, *update.body))


def kept(moved: tuple[Moved, ...], step: Tensor, name: str, rows: int) -> KeepStatistics:
    """Keeps the values of a part in its row of ``name``: (rows, numbers of a part)."""
    numbers = sum(each.value.size for each in moved)
    table = Tensor(name, (rows, numbers), "float32", "state")
    values = tuple(each.value for each in moved)
    return KeepStatistics(values=values, step=step, kept=table, parts=rows)


def statistics_left(ops: tuple[Op, ...]) -> tuple[tuple[Op, ...], tuple[Moved, ...]]:
    """The operations, where batch norm leaves its running statistics alone, and how they move.

    The weight of a variance makes that of the batch an unbiased one.
    """
    found: list[Op] = []
    moved: list[Moved] = []
    for op in ops:
        if isinstance(op, BatchNorm) and op.running_mean is not None:
            assert op.running_var is not None
            m, count = op.momentum, op.x.size // op.x.shape[1]
            var = replace(op.mean, name=f"{op.mean.name.removesuffix('mean')}var")
            moved.append(Moved(op.running_mean, op.mean, m, m))
            moved.append(Moved(op.running_var, var, m, m * count / (count - 1)))
            op = replace(op, running_mean=None, running_var=None, var=var)
        found.append(op)
    return tuple(found), tuple(moved)
