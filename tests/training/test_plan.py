"""Counts of a training, and when something is due."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError, DatasetError
from dnnstack.configs import RunConfig, load_config, parse_config
from dnnstack.training.listener import Listener
from dnnstack.training.pace import Pace
from dnnstack.training.plan import make_plan
from dnnstack.training.records.resume import open_resume
from dnnstack.training.trainer import train

from ..support.training_fixtures import TINY

Make = Callable[..., RunConfig]


def test_counts(tiny):
    plan = make_plan(tiny(), 200)
    assert (len(plan.train), len(plan.validation)) == (168, 32)
    assert sorted([*plan.train, *plan.validation]) == list(range(200))
    assert (plan.steps_per_epoch, plan.total_steps) == (10, 25)
    assert plan.rates.shape == (25,)


def test_a_factor_scales_all_rates_and_nothing_else(tiny):
    groups = "[{parameters: dense_1.weight, schedule: {type: exp, gamma: 0.9}}]"
    plan = make_plan(
        tiny(f"optimizer={{type: sgd, lr: 0.5, ema: {{decay: 0.9}}, groups: {groups}}}"), 200
    )
    found = plan.scaled_tables(np.float32(0.25))
    assert found.keys() == {"rates", "rates.0", "ema.decays"}
    np.testing.assert_array_equal(found["rates"], plan.rates * np.float32(0.25))
    np.testing.assert_array_equal(found["rates.0"], plan.tables["rates.0"] * np.float32(0.25))
    np.testing.assert_array_equal(found["ema.decays"], plan.tables["ema.decays"])


def test_length_in_epochs(tiny):
    assert make_plan(tiny("train={epochs: 2.5}"), 200).total_steps == 25


def test_the_evaluation_batch_is_no_larger_than_the_set(tiny):
    assert make_plan(tiny("data.evaluation_batch_size=500"), 200).evaluation_batch_size == 32
    assert make_plan(tiny("data.validation=0"), 200).evaluation_batch_size == 1


def _stops(config: RunConfig) -> list[int]:
    plan = make_plan(config, 200)
    steps = [0]
    while steps[-1] < plan.total_steps:
        steps.append(plan.next_stop(steps[-1]))
    return steps[1:]


def test_stops_where_something_is_due_or_an_epoch_ends(tiny):
    config = tiny(
        "train={max_steps: 25, log_every: 8, validate_every_epochs: 3}",
        "checkpoint={every_steps: 7}",
    )
    assert _stops(config) == [7, 8, 10, 14, 16, 20, 21, 24, 25]


def test_what_is_due(tiny):
    plan = make_plan(tiny("train.validate_every_epochs=2", "checkpoint={every_epochs: 1}"), 200)
    steps = range(1, 26)
    assert [s for s in steps if plan.log_due(s)] == [4, 8, 12, 16, 20, 24]
    assert [s for s in steps if plan.validation_due(s)] == [20, 25]
    assert [s for s in steps if plan.save_due(s)] == [10, 20, 25]
    plan = make_plan(tiny("data.validation=0"), 200)
    assert not any(plan.validation_due(s) for s in steps)


def test_snapshots_are_due_where_cycles_end(tiny):
    wanted = ("checkpoint={every_steps: 10, snapshots: true}", "train={max_steps: 25}")
    config = tiny("schedule={type: cosine_restarts, length: 4, multiplier: 2}", *wanted)
    plan = make_plan(config, 200)
    assert plan.snapshots == (4, 12)
    assert [s for s in range(1, 26) if plan.save_due(s)] == [4, 10, 12, 20, 25]
    assert {4, 12} <= {*_stops(config)}
    for schedule, why in (("cosine", "'cosine' has no cycles"), ("30", "ends after 25 steps")):
        text = "cosine" if schedule == "cosine" else "{type: cosine_restarts, length: 30}"
        with pytest.raises(ConfigError, match=f"checkpoint.snapshots: .*{why}"):
            make_plan(tiny(f"schedule={text}", *wanted), 200)


@pytest.mark.parametrize("count", [200, 1000, 9000])
@pytest.mark.parametrize("steps", [1, 3, 19, 20, 25, 100, 101, 150, 1000, 5000])
def test_a_log_of_any_run_has_enough_lines(tiny, count, steps):
    """Without ``log_every``: 20 lines or one for each step, one in each epoch, 100 steps apart."""
    plan = make_plan(tiny(f"train={{max_steps: {steps}}}"), count)
    due = [step for step in range(1, steps + 1) if plan.log_due(step)]
    assert len(due) >= min(20, steps)
    assert max(np.diff([0, *due])) <= 100
    whole = range(plan.steps_per_epoch, steps + 1, plan.steps_per_epoch)
    assert {(step - 1) // plan.steps_per_epoch for step in due} >= {
        step // plan.steps_per_epoch - 1 for step in whole
    }


def test_long_runs_have_a_line_for_a_hundred_steps(tiny):
    assert make_plan(tiny("train={max_steps: 5000}"), 9000).log_every == 100
    assert make_plan(tiny("train={max_steps: 5000}"), 200).log_every == 10
    assert make_plan(tiny("train={max_steps: 100}"), 9000).log_every == 5
    assert make_plan(tiny("train={max_steps: 100, log_every: 70}"), 9000).log_every == 70


def test_a_goal_that_is_measured_in_the_log_has_epochs_as_its_lines(tiny):
    goal = "train={max_steps: 50, goal: {accuracy: 1.0}}"
    assert make_plan(tiny(goal, "data.validation=0"), 200).log_every == 12
    assert make_plan(tiny(goal), 200).log_every == 2


def test_a_batch_larger_than_the_set(tiny):
    with pytest.raises(DatasetError, match=r"data\.batch_size: 169 is more than the 168"):
        make_plan(tiny("data.batch_size=169"), 200)


def test_a_milestone_beyond_the_end(tiny):
    with pytest.raises(ConfigError, match="step 30 is never reached, training ends after 25"):
        make_plan(tiny("schedule={type: multistep, milestones: [5, 30]}"), 200)


_MULTISTEP = "schedule: {type: multistep, milestones: [5, 30], gamma: 0.5}"


def test_a_milestone_beyond_a_length_given_by_an_override_is_a_notice(tiny):
    """A config is tried for a few steps, and its schedule, that of the file, is not wrong."""
    text = TINY.replace("optimizer:", f"{_MULTISTEP}\noptimizer:")
    longer = parse_config(text.replace("25", "50"), "tiny.yaml")
    assert make_plan(longer, 200).notices == ()
    with pytest.raises(ConfigError, match="step 30 is never reached"):
        make_plan(parse_config(text, "tiny.yaml"), 200)
    for change in ("train.max_steps=20", "train.epochs=2", "train={max_steps: 20}"):
        plan = make_plan(parse_config(text, "tiny.yaml", [change]), 200)
        (notice,) = plan.notices
        assert notice == (
            "schedule.milestones: step 30 is never reached, training ends after 20 steps "
            "(10 per epoch)"
        )
        np.testing.assert_array_equal(plan.rates, make_plan(longer, 200).rates[:20])
    given = "schedule.milestones=[5, 30]"
    with pytest.raises(ConfigError, match="step 30 is never reached"):
        make_plan(parse_config(text, "tiny.yaml", ["train.max_steps=20", given]), 200)


def test_a_shortened_run_can_be_resumed_from_its_own_config(tmp_path, reference):
    """That one does not know any more who gave its length."""
    text = TINY.replace("optimizer:", f"{_MULTISTEP}\noptimizer:")
    config = parse_config(text, "t.yaml", ["train.max_steps=20", f"run.dir={tmp_path / 'runs'}"])
    steps = iter(range(100))
    stopped = train(config, reference, tmp_path, stop_requested=lambda: next(steps) > 8)
    assert stopped.state == "interrupted"
    own = load_config(stopped.run / "config.yaml").config
    assert not own.train.length_overridden
    heard: list[str] = []

    class Notices(Listener):
        def notice(self, text: str) -> None:
            heard.append(text)

    resume = open_resume(stopped.run, heard.append)
    done = train(own, reference, tmp_path, resume=resume, listener=Notices())
    assert (done.state, done.step) == ("finished", 20)
    assert any("step 30 is never reached" in text for text in heard)


def test_pace_leaves_validation_and_saving_out(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("dnnstack.training.pace.perf_counter", lambda: now[0])
    pace = Pace(batch_size=10)
    pace.start()
    assert (pace.chunk, pace.images_per_second, pace.seconds_left(60)) == (1, 0.0, 0.0)
    now[0] += 2.0
    pace.ran(4, 2.0)
    assert pace.chunk == 1
    now[0] += 5.0
    pace.validated(5.0)
    now[0] += 1.0
    pace.saved(1.0)
    assert pace.images_per_second == 20.0
    assert pace.training_seconds == 2.0
    assert (pace.validation_seconds, pace.saving_seconds) == (5.0, 1.0)
    assert pace.seconds_left(56) == 56 * 8.0 / 4
    pace.next_window()
    assert pace.images_per_second == 20.0
    now[0] += 1.0
    pace.ran(6, 1.0)
    assert pace.images_per_second == 60.0
    assert pace.overall_images_per_second == pytest.approx(100 / 3)


def test_chunks_take_a_quarter_of_a_second():
    pace = Pace(1)
    pace.ran(10, 0.1)
    assert pace.chunk == 25
    pace.ran(1, 5.0)
    assert pace.chunk == 1
    pace.ran(1, 0.0)
    assert np.isfinite(pace.chunk)


def test_patience_wants_validations(tiny):
    with pytest.raises(ConfigError, match=r"train\.patience: .*data\.validation is 0"):
        make_plan(tiny("train.patience=2", "data.validation=0"), 200)
    make_plan(tiny("train.patience=2"), 200)
