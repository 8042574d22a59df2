"""A batch in parts: sums of gradients, and running statistics that move with the update."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dnnstack.graph.graph import Op, Tensor
from dnnstack.graph.ops import (
    Accumulate,
    BatchNorm,
    Dropout,
    KeepStatistics,
    MoveStatistics,
    SumShared,
)
from dnnstack.optimizers.groups import Group
from dnnstack.passes.parts import in_parts, statistics_left, statistics_moved
from dnnstack.passes.prune import masked
from dnnstack.passes.section import within
from dnnstack.passes.share import shared

from .plain import WEIGHTS, grad, kept, number, parameter, plain

SUMS = tuple(kept("accumulated", w) for w in WEIGHTS)
STEP = Tensor("update.step", (1,), "int64", "state")


def test_a_part_adds_up_gradients_and_the_update_reads_the_sums() -> None:
    section = plain()
    train, update = in_parts(section, "update-3", 4, 4, mean=True)
    assert train.after == (
        Accumulate(
            gradients=tuple(map(grad, WEIGHTS)),
            step=section.step,
            sums=SUMS,
            pending=tuple(kept("accumulated.1", w) for w in WEIGHTS),
            parts=4,
            scale=0.25,
        ),
    )
    results = dict(section.results)
    rates = results.pop("rates")
    assert (train.results, train.members, train.before) == (results, (), ())
    assert (train.name, train.batch_size, train.step) == ("train", 4, section.step)
    of_parts = [op for op in train.body if isinstance(op, Dropout)]
    assert [op.parts for op in of_parts] == [4]
    assert [replace(op, parts=1) if isinstance(op, Dropout) else op for op in train.body] == [
        *section.body
    ]

    assert (update.name, update.batch_size, update.step) == ("update-3", 1, STEP)
    assert (update.body, update.before, update.after) == ((), (), ())
    assert update.results == {"update.step": STEP, "rates": rates}
    assert [m.gradient for m in update.members] == [*SUMS]
    originals = zip(update.members, section.members, strict=True)
    assert all(replace(m, gradient=old.gradient) == old for m, old in originals)


@pytest.mark.parametrize(("parts", "mean", "scale"), [(3, True, 1 / 3), (3, False, 1.0)])
def test_the_sum_is_a_mean_if_the_loss_is_one(parts: int, mean: bool, scale: float) -> None:
    (add,) = in_parts(plain(), "update", parts, parts, mean)[0].after
    assert isinstance(add, Accumulate)
    assert (add.parts, add.scale, add.pending) == (parts, scale, ())


def test_the_update_has_what_masks_and_centroids_do() -> None:
    section = masked(shared(plain(), {"dense_1.weight": 1}), ("conv2d_1.*",))
    train, update = in_parts(section, "update", 2, 2, mean=True)
    dense = WEIGHTS[3]
    centroids = parameter(f"centroids/{dense.name}", 2)
    mask, total = update.before
    assert mask == replace(section.before[0], values=(SUMS[0],))  # type: ignore[call-arg]
    own = grad(centroids, "update")
    assert total == SumShared(gradients=(SUMS[3],), codes=(kept("code", dense),), sums=(own,))
    assert [m.gradient for m in update.members] == [*SUMS[:3], own, SUMS[4]]
    assert update.after == section.after
    (add,) = train.after
    assert isinstance(add, Accumulate)
    assert (add.gradients, add.sums) == (tuple(map(grad, WEIGHTS)), SUMS)


def test_a_process_may_compute_some_of_the_parts() -> None:
    whole, update = in_parts(plain(), "update", 8, 8, mean=True)
    some, same = in_parts(plain(), "update", 8, 4, mean=True)
    assert same == update
    assert some.body == whole.body
    pending = tuple(kept("accumulated.1", w) for w in WEIGHTS)
    assert some.after == (replace(whole.after[0], parts=4, pending=pending),)  # type: ignore[call-arg]


def test_a_stretch_that_trains_nothing_adds_nothing_up() -> None:
    train, update = in_parts(
        within(plain((Group(freeze_until=1.0),)), 0), "update", 2, 2, mean=True
    )
    assert (train.after, update.members) == ((), ())


def test_running_statistics_move_with_the_update() -> None:
    section = plain()
    train, update = statistics_moved(*in_parts(section, "update", 2, 2, mean=True), 2)
    mean, var = number("batch_norm_1.mean", 2), number("batch_norm_1.var", 2)
    running = tuple(
        Tensor(f"batch_norm_1.running_{name}", (2,), "float32", "state") for name in ("mean", "var")
    )
    rows = Tensor("kept_statistics", (2, 4), "float32", "state")
    assert train.before == (
        KeepStatistics(values=(mean, var), step=section.step, kept=rows, parts=2),
    )
    # 4 pictures of 2 x 2 values: the variance of a batch is made unbiased.
    weight = (0.3, 0.3 * 16 / 15)
    assert update.body == (
        MoveStatistics(kept=rows, running=running, momentum=(0.3, 0.3), weight=weight),
    )
    place = next(i for i, op in enumerate(section.body) if isinstance(op, BatchNorm))
    norm: Op = replace(section.body[place], running_mean=None, running_var=None, var=var)  # type: ignore[call-arg]
    assert train.body[place] == norm


def test_batch_norm_that_moves_nothing_leaves_nothing() -> None:
    body, keep, _ = statistics_left(plain().body, plain().step, "rows", 3)
    assert len(keep.values) == 2
    assert keep.kept == Tensor("rows", (3, 4), "float32", "state")
    again, keep, move = statistics_left(body, plain().step, "rows", 3)
    assert (again, keep.values, move.running) == (body, (), ())
    train, update = in_parts(replace(plain(), body=body), "update", 2, 2, mean=True)
    assert statistics_moved(train, update, 2) == (train, update)
