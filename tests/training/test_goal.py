"""A goal ends a training; whether it was reached survives stops and resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.common.typed_json import from_json
from dnnstack.configs import RunConfig, load_config, parse_config
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.state import Metrics, State
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.session import Session

from ..support.resuming import Ear, go
from ..support.stored import cases

LONG = "train={max_steps: 95, log_every: 7"
NAND, XOR = "[1,1,1,0]", "[0,1,1,0]"


@pytest.fixture
def planned(monkeypatch):
    """Validations, each 10 steps, with a tenth more right each time and a falling loss."""

    def validate(self: Session, stop_requested: Callable[[], bool]) -> Metrics | None:
        return Metrics(1.0 - self.step / 100, self.step // 10 * 4, 40)

    monkeypatch.setattr(Session, "validate", validate)


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(("goal", "step"), cases(__file__, "it_ends_at_the_goal_1"))
def test_it_ends_at_the_goal(tiny, reference, goal, step):
    done = go(tiny(LONG + f", goal: {{{goal}}}}}"), reference)
    assert (done.state, done.goal) == ("finished", step is not None)
    assert (done.step, done.early) == (step or 95, step is not None)
    end = json.loads((done.run / "log.jsonl").read_text().splitlines()[-1])
    assert (end["event"], end["goal"]) == ("end", step is not None)
    assert newest_checkpoint(done.run / "checkpoints").state.step == done.step


@pytest.mark.usefixtures("planned")
def test_without_a_goal_nothing_is_said_of_one(tiny, reference):
    done = go(tiny(LONG + "}"), reference)
    assert done.goal is None
    assert "goal" not in (done.run / "log.jsonl").read_text()


@pytest.mark.usefixtures("planned")
def test_a_reached_goal_stays_reached(tiny, reference):
    config = tiny(LONG + ", goal: {accuracy: 0.3}}")
    done = go(config, reference)
    ear = Ear()
    again = go(config, reference, done.run, ear)
    assert (again.goal, again.step) == (True, 30)
    assert "already reached its goal; raise or remove train.goal" in ear.notices[0]
    further = go(tiny(LONG + ", goal: {accuracy: 0.6}}"), reference, done.run)
    assert (further.goal, further.step) == (True, 60)


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("stop_at", [3, 29, 31])
def test_a_goal_survives_a_resume(tiny, reference, stop_at):
    config = tiny(LONG + ", goal: {accuracy: 0.4}}")
    whole = go(config, reference)
    first = go(config, reference, ear=Ear(stop_at))
    assert first.state == "interrupted"
    done = go(config, reference, first.run)
    assert (done.goal, done.step) == (True, 40)
    want, got = (newest_checkpoint(each.run / "checkpoints").arrays for each in (whole, done))
    for name, array in want.items():
        np.testing.assert_array_equal(got[name], array)


def table(targets: str, *overrides: str) -> RunConfig:
    dataset = f"data.dataset.table.targets={targets}"
    return load_config("perceptron-nand.yaml", [dataset, *overrides]).config


@pytest.mark.parametrize("targets", [NAND, "[0,0,0,1]", "[0,1,1,1]", "[1,0,0,0]", "[0,0,1,0]"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_perceptron_learns_what_a_line_separates(tmp_path, backend, targets, seed):
    done = go(table(targets, f"run.dir={tmp_path}", f"seed={seed}"), backend)
    assert (done.goal, done.early) == (True, True)
    assert done.training is not None
    assert (done.training.loss, done.training.accuracy) == (0.0, 1.0)
    arrays = newest_checkpoint(done.run / "checkpoints").arrays
    rows = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    fires = rows @ arrays["dense_1.weight"].T + arrays["dense_1.bias"] > 0
    wanted = np.array(json.loads(targets))
    np.testing.assert_array_equal(fires, np.stack([wanted == 0, wanted == 1], 1))


def test_rosenblatts_rule(tmp_path, backend):
    """Whole numbers throughout: each mistake adds or subtracts the input, here times 1."""
    done = go(table(NAND, f"run.dir={tmp_path}"), backend)
    for array in newest_checkpoint(done.run / "checkpoints").arrays.values():
        np.testing.assert_array_equal(array, np.round(array))
        assert np.abs(array).max() >= 1


@pytest.mark.parametrize("targets", [XOR, "[1,0,0,1]"])
def test_it_never_converges_on_what_no_line_separates(tmp_path, reference, targets):
    done = go(table(targets, f"run.dir={tmp_path}"), reference)
    assert (done.state, done.goal, done.early) == ("finished", False, False)
    assert done.step == done.total_steps == 400


def test_a_part_of_a_pass_is_no_convergence(tmp_path, reference):
    """Training that ends within a pass: one or two samples in a row may well be right."""
    for steps in range(21, 40):
        length = f"train={{max_steps: {steps}, log_every: 4, goal: {{loss: 0}}}}"
        assert not go(table(XOR, f"run.dir={tmp_path}", length), reference).goal


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_hidden_layer_learns_xor(tmp_path, backend, seed):
    config = load_config("mlp-xor.yaml", [f"run.dir={tmp_path}", f"seed={seed}"]).config
    done = go(config, backend)
    assert done.goal
    assert done.training is not None
    assert done.training.accuracy == 1.0


def test_a_pass_through_all_samples_is_what_counts(tmp_path, reference):
    """Three of four right in a row are no convergence: a line of the log must cover an epoch."""
    config = table(NAND, f"run.dir={tmp_path}", "train.log_every=3")
    with pytest.raises(
        ConfigError, match=r"train\.log_every: 3 is less than the 4 steps .* set it to 4"
    ):
        make_plan(config, 4)
    make_plan(table(NAND, "train.log_every=3", "data.validation=1"), 4)


def test_a_goal_says_what_to_reach(tiny):
    with pytest.raises(ConfigError, match=r"train\.goal: required: accuracy or r2 or loss"):
        tiny("train.goal={}")
    with pytest.raises(ConfigError, match=r"train\.goal\.accuracy: expected a number of at most 1"):
        tiny("train.goal={accuracy: 99}")


def test_the_state_carries_it(state):
    config = parse_config(
        "data: {dataset: strokes}\nlayers: [flatten, dense: {units: 10}]\n"
        "optimizer: {type: sgd, lr: 1}\ntrain: {epochs: 1, goal: {accuracy: 0.5, loss: 1}}\n",
        "x.yaml",
    )
    goal = config.train.goal
    assert not state.reached(goal)
    assert not replace(state, measured=(1.0, 0.0)).reached(None)
    assert replace(state, measured=(0.5, 1.0)).reached(goal)
    assert not replace(state, measured=(0.49, 1.0)).reached(goal)
    assert not replace(state, measured=(0.5, 1.1)).reached(goal)
    kept = from_json(json.dumps(replace(state, measured=(0.5, 1.0)).to_json()), State)
    assert kept.measured == (0.5, 1.0)
    old = {key: value for key, value in state.to_json().items() if key != "measured"}
    assert from_json(json.dumps(old), State).measured is None
