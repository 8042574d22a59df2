"""Rates that fall at a plateau of the validations, through stops and resumes, in the same bits."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs.schema.training import PlateauConfig
from dnnstack.training.plan import make_plan
from dnnstack.training.records.formats.plateau import Plateau
from dnnstack.training.records.formats.state import START, Metrics
from dnnstack.training.records.formats.store import newest_checkpoint
from dnnstack.training.session import Session

from ..support.resuming import Ear, go

LOSSES = [1.0, 0.9, 0.95, 0.895, 0.91, 0.9, 0.89, 0.85, 0.85, 0.85, 0.85, 0.85, 0.84, 0.84, 0.85]
PLAIN = ("train={max_steps: 95, log_every: 7}",)
LOWERED = (*PLAIN, "train.reduce_on_plateau={patience: 2, factor: 0.5}")


def factors(values, **options):
    config, state, found = PlateauConfig(factor=0.5, **options), Plateau(), []
    for value in values:
        state = state.after("loss", value, config, 2.0)
        found.append(state.factor)
    return found


@pytest.mark.parametrize(
    ("options", "falls"),
    [
        ({"patience": 2}, [5, 9, 11, 14]),
        ({"patience": 2, "threshold": 0.1}, [2, 5, 7, 9, 11, 13]),
        ({"patience": 1, "cooldown": 2}, [2, 5, 8, 11, 14]),
    ],
)
def test_it_falls_where_pytorch_lets_it_fall(options, falls):
    """Numbers of its ReduceLROnPlateau, version 2.14, whose patience is one less."""
    wanted = [0.5 ** sum(fall <= at for fall in falls) for at in range(len(LOSSES))]
    assert factors([-loss for loss in LOSSES], **options) == wanted


def test_it_falls_no_further_than_the_least_rate():
    """A fifth of the optimizer's, in which PyTorch ends as well."""
    found = factors([-loss for loss in LOSSES], patience=1, threshold=0.01, min_lr=0.4)
    assert found == [1.0, 1.0, 0.5, 0.25] + [0.2] * 11
    # A rate that is lower by itself is not raised.
    assert set(factors([0.0] * 3, patience=1, min_lr=9.0)) == {1.0}


def test_higher_is_better_of_an_accuracy_and_nothing_is_no_better():
    values = [0.5, 0.6, 0.604, 0.61, 0.6, 0.61, 0.62, 0.61, 0.63]
    assert factors(values, patience=2, threshold=0.01) == [1.0] * 5 + [0.5] * 4
    assert factors([None, None, 0.1, None, None], patience=2) == [1.0, 0.5, 0.5, 0.5, 0.25]


def test_another_metric_begins_anew():
    config = PlateauConfig(patience=1)
    state = Plateau("loss", -0.1).after("accuracy", -5.0, config, 1.0)
    assert state == Plateau("accuracy", -5.0)


@pytest.mark.parametrize(
    ("by", "best_by", "other", "better"),
    [
        ("loss", None, None, "loss"),
        ("best", None, None, "accuracy"),
        ("best", "loss", None, "loss"),
        ("best", "f1", 0.3, "f1"),
        ("best", "rmse", -0.3, "rmse"),
    ],
)
def test_what_is_measured(tiny, by, best_by, other, better):
    chosen = () if best_by is None else (f"checkpoint.best_by={best_by}",)
    config = tiny(f"train.reduce_on_plateau={{by: {by}}}", *chosen)
    named = best_by if other is not None else ""
    found = Metrics(0.7, 16, 32, None, named, {named: abs(other or 0.0)})
    want = {"loss": -0.7, "accuracy": 0.5}.get(better, other)
    assert START.slowed(found, config).plateau == Plateau(better, want)
    assert START.slowed(found, tiny()) == START


@pytest.fixture
def planned(monkeypatch):
    """Validations every 10 steps, of which the third is the best."""

    def validate(self, stop_requested):
        return None if stop_requested() else Metrics(abs(self.step - 30.0) + 1.0, 8, 32)

    monkeypatch.setattr(Session, "validate", validate)


def rates(run, kind="train"):
    with (run / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == kind]
    return {int(row["step"]): float(row["learning_rate"]) for row in rows}


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("stop_at", [30, 47, 50, 51, 70])
def test_a_resume_changes_no_bit(tiny, backend, stop_at):
    groups = (
        "[{kind: bias, lr_factor: 3}, {parameters: dense*, schedule: {type: step, step_size: 9}}]"
    )
    config = tiny(*LOWERED, f"optimizer.groups={groups}")
    whole, half = go(config, backend), go(config, backend, ear=Ear(stop_at))
    assert half.state == "interrupted"
    done = go(config, backend, half.run)
    one, other = (newest_checkpoint(each.run / "checkpoints") for each in (whole, done))
    assert one.state.plateau == other.state.plateau == Plateau("loss", -1.0, 1, 0, 0.125)
    assert {n: a.tobytes() for n, a in one.arrays.items()} == {
        n: a.tobytes() for n, a in other.arrays.items()
    }
    assert rates(whole.run) == rates(done.run)
    lr = rates(whole.run)[7]
    want = {
        step: lr * 0.5 ** sum(step > fall for fall in (50, 70, 90)) for step in (49, 56, 70, 91)
    }
    np.testing.assert_allclose([rates(whole.run)[step] for step in want], [*want.values()])
    # A validation's rate is that of the step before it.
    assert rates(whole.run, "validation")[50] == lr


@pytest.mark.usefixtures("planned")
def test_the_rates_of_all_groups_fall(tiny, reference):
    """As if every rate had been the half from there on."""
    groups = "optimizer.groups=[{kind: bias, lr: 0.3}]"
    config = tiny(*LOWERED, "train.max_steps=60", groups)
    fallen = newest_checkpoint(go(config, reference).run / "checkpoints")
    half = "{type: multistep, milestones: [50], gamma: 0.5}"
    config = tiny(*PLAIN, "train.max_steps=60", f"schedule={half}", groups)
    wanted = newest_checkpoint(go(config, reference).run / "checkpoints")
    for name, array in wanted.arrays.items():
        assert array.tobytes() == fallen.arrays[name].tobytes(), name


def test_it_wants_validations(tiny):
    with pytest.raises(ConfigError, match=r"train\.reduce_on_plateau: .*data\.validation is 0"):
        make_plan(tiny("train.reduce_on_plateau={patience: 2}", "data.validation=0"), 200)
