"""Counts of a training, and when something is due."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError, DatasetError
from dnnstack.configs import RunConfig
from dnnstack.training.pace import Pace
from dnnstack.training.plan import make_plan

Make = Callable[..., RunConfig]


def test_counts(tiny: Make) -> None:
    plan = make_plan(tiny(), 200)
    assert (len(plan.train), len(plan.validation)) == (168, 32)
    assert sorted([*plan.train, *plan.validation]) == list(range(200))
    assert (plan.steps_per_epoch, plan.total_steps) == (10, 25)
    assert plan.rates.shape == (25,)


def test_length_in_epochs(tiny: Make) -> None:
    assert make_plan(tiny("train={epochs: 2.5}"), 200).total_steps == 25


def test_the_evaluation_batch_is_no_larger_than_the_set(tiny: Make) -> None:
    assert make_plan(tiny("data.evaluation_batch_size=500"), 200).evaluation_batch_size == 32
    assert make_plan(tiny("data.validation=0"), 200).evaluation_batch_size == 1


def _stops(config: RunConfig) -> list[int]:
    plan = make_plan(config, 200)
    steps = [0]
    while steps[-1] < plan.total_steps:
        steps.append(plan.next_stop(steps[-1]))
    return steps[1:]


def test_stops_where_something_is_due_or_an_epoch_ends(tiny: Make) -> None:
    config = tiny(
        "train={max_steps: 25, log_every: 8, validate_every_epochs: 3}",
        "checkpoint={every_steps: 7}",
    )
    assert _stops(config) == [7, 8, 10, 14, 16, 20, 21, 24, 25]


def test_what_is_due(tiny: Make) -> None:
    plan = make_plan(tiny("train.validate_every_epochs=2", "checkpoint={every_epochs: 1}"), 200)
    steps = range(1, 26)
    assert [s for s in steps if plan.log_due(s)] == [4, 8, 12, 16, 20, 24]
    assert [s for s in steps if plan.validation_due(s)] == [20, 25]
    assert [s for s in steps if plan.save_due(s)] == [10, 20, 25]
    plan = make_plan(tiny("data.validation=0"), 200)
    assert not any(plan.validation_due(s) for s in steps)


def test_a_batch_larger_than_the_set(tiny: Make) -> None:
    with pytest.raises(DatasetError, match=r"data\.batch_size: 169 is more than the 168"):
        make_plan(tiny("data.batch_size=169"), 200)


def test_a_milestone_beyond_the_end(tiny: Make) -> None:
    with pytest.raises(ConfigError, match="step 30 is never reached, training ends after 25"):
        make_plan(tiny("schedule={type: multistep, milestones: [5, 30]}"), 200)


def test_pace_leaves_validation_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("dnnstack.training.pace.perf_counter", lambda: now[0])
    pace = Pace(batch_size=10)
    pace.start()
    assert (pace.chunk, pace.images_per_second, pace.seconds_left(60)) == (1, 0.0, 0.0)
    now[0] += 2.0
    pace.ran(4, 2.0)
    assert pace.chunk == 1
    now[0] += 6.0
    pace.validated(6.0)
    assert pace.images_per_second == 20.0
    assert pace.training_seconds == 2.0
    assert pace.validation_seconds == 6.0
    assert pace.seconds_left(56) == 56 * 8.0 / 4
    pace.next_window()
    assert pace.images_per_second == 20.0
    now[0] += 1.0
    pace.ran(6, 1.0)
    assert pace.images_per_second == 60.0
    assert pace.overall_images_per_second == pytest.approx(100 / 3)


def test_chunks_take_a_quarter_of_a_second() -> None:
    pace = Pace(1)
    pace.ran(10, 0.1)
    assert pace.chunk == 25
    pace.ran(1, 5.0)
    assert pace.chunk == 1
    pace.ran(1, 0.0)
    assert np.isfinite(pace.chunk)


def test_patience_wants_validations(tiny: Make) -> None:
    with pytest.raises(ConfigError, match=r"train\.patience: .*data\.validation is 0"):
        make_plan(tiny("train.patience=2", "data.validation=0"), 200)
    make_plan(tiny("train.patience=2"), 200)
