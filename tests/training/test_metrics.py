"""Figures of numbers, questions, classes and distributions, and the best checkpoint by them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.common.targets import METRICS
from dnnstack.configs import RunConfig, parse_config
from dnnstack.many.outcome import outcome
from dnnstack.training.inference.intervals import normal, sign_flip
from dnnstack.training.metrics import Calibration, measure, roc_auc, roc_curve, worst_first
from dnnstack.training.ranks.leader import dealt_out
from dnnstack.training.records.formats.state import Best, Metrics, State, figure, shown
from dnnstack.training.session import Session
from dnnstack.training.trainer import train

CASES = json.loads(Path(__file__).with_name("metrics_cases.json").read_text())
NET = """
data: {dataset: {table: {inputs: [[0, 1], [1, 0.123], [2, 2], [3, 1], [1, 3], [0, 0], [2, 1]],
    targets: TARGETS, kind: KIND}}, batch_size: 2, evaluation_batch_size: 3, validation: 4}
layers: [dense: {units: 3}, tanh, dense: {units: 2}]
loss: LOSS
optimizer: {type: sgd, lr: 0.3}
train: {epochs: 4}
"""
ROWS = {
    "numbers": ([[1, 5], [2, 1], [0, 3], [1, 1], [4, 2], [2, 2], [3, 0]], "mse"),
    "yes_no": ([[1, 0], [0, 1], [1, 1], [0, 0], [1, 0], [0, 1], [1, 1]], "binary_cross_entropy"),
    "distribution": ([[0.5, 0.5], [1, 0], [0, 1], [0.2, 0.8], [1, 0], [0, 1], [1, 0]], None),
}


def configured(kind: str, *overrides: str) -> RunConfig:
    rows, loss = ROWS[kind]
    text = NET.replace("TARGETS", str(rows)).replace("KIND", kind)
    return parse_config(text.replace("LOSS", loss or "cross_entropy"), "net.yaml", overrides)


@pytest.mark.parametrize("case", CASES, ids=[case["kind"] for case in CASES])
def test_figures_are_those_of_scikit_learn(case):
    targets, answers = (np.array(case[key]) for key in ("targets", "answers"))
    found = measure(case["kind"], targets, answers)
    assert set(found.overall) == {*METRICS[case["kind"]]}
    outputs = zip(found.outputs, case["outputs"], strict=True)
    for own, wanted in [(found.overall, case["overall"]), *outputs]:
        for key, value in wanted.items():
            assert own[key] == (value if value is None else pytest.approx(value, rel=1e-12)), key


def test_figures_by_hand():
    # Bins of a fifteenth: (0.6, 0.667] has 0.62 and 0.64 with one right of two, (0.867, 0.933] 0.9.
    counted = Calibration()
    assert counted.error is None
    counted.add(np.array([0.62, 0.64, 0.9, 1.0, 0.0]), np.array([True, False, True, True, False]))
    assert counted.error == pytest.approx((abs(1.26 - 1) + abs(0.9 - 1)) / 5)
    counted.add(np.array([1.5]), np.array([True]))
    assert counted.error is None
    shares = measure(
        "distribution", np.array([[0.5, 0.5], [1, 0]]), np.array([[0.25, 0.75], [0.5, 0.5]])
    )
    crossed = (-0.5 * np.log(0.25) - 0.5 * np.log(0.75) - np.log(0.5)) / 2
    assert shares.overall["cross_entropy"] == pytest.approx(crossed)
    assert shares.overall["kl_divergence"] == pytest.approx(crossed - np.log(2) / 2)
    assert shares.overall["accuracy"] == 0.5
    equal = np.ones((3, 1))
    assert measure("numbers", equal, equal).overall["r2"] == 1.0
    assert measure("numbers", equal, equal + 1).overall["r2"] == 0.0
    residuals = measure("numbers", np.zeros((5, 1)), np.array([[-2], [0], [1], [3], [8]])).outputs[
        0
    ]
    assert residuals["residuals"] == {
        "mean": 2, "min": -2, "p25": 0, "median": 1, "p75": 3, "max": 8
    }  # fmt: skip
    asked = np.array([[0.3]]), np.array([[1.0]])
    assert measure("yes_no", asked[1], asked[0], 0.3).outputs[0]["fn"] == 1
    assert measure("yes_no", asked[1], asked[0], 0.29).outputs[0]["tp"] == 1
    assert worst_first(np.array([1.0, 3.0, 3.0, 2.0]), 3) == [1, 2, 3]
    assert [figure("mae", 12.3456), figure("f1", 0.5), figure("r2", None)] == [
        "12.35",
        "50.00%",
        "-",
    ]
    assert [shown("accuracy", 0.5), shown("r2", 0.25)] == ["50.00%", "R2 0.2500"]


def test_the_curve_has_the_area_of_roc_auc():
    rng = np.random.default_rng(3)
    yes, answers = rng.random(40) < 0.4, rng.integers(0, 6, 40) / 5
    x, y = roc_curve(yes, answers)
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)
    assert np.trapezoid(y, x) == pytest.approx(roc_auc(yes, answers))
    pairs = itertools.product(answers[yes], answers[~yes])
    won = [1.0 if a > b else 0.5 if a == b else 0.0 for a, b in pairs]
    assert roc_auc(yes, answers) == pytest.approx(np.mean(won))
    assert roc_auc(np.ones(2, np.bool_), answers[:2]) is None


def test_signs_are_flipped_exactly_where_few_differ():
    given = np.array([0.5, -0.25, 0.0, 1.0, 0.125])
    sums = [abs(np.dot(given, signs)) for signs in itertools.product((-1, 1), repeat=5)]
    assert sign_flip(given) == np.mean([each >= abs(given.sum()) for each in sums])
    assert sign_flip(np.zeros(3)) == 1.0
    # 5% lie beyond 1.96 deviations of the sum.
    many = np.where(np.arange(400) < 200 + 19.6, 1.0, -1.0)
    assert sign_flip(many) == pytest.approx(0.0455, abs=0.001)
    assert sign_flip(np.full(16, 1.0)) == 2 / 2**16
    low, high = normal(np.array([1.0, 2.0, 3.0]))
    assert (low, high) == pytest.approx((2 - 1.96 / 3**0.5, 2 + 1.96 / 3**0.5), abs=1e-4)
    assert normal(np.ones(1)) == (-np.inf, np.inf)


@pytest.mark.parametrize(
    ("kind", "by"), [(kind, by) for kind in ROWS for by in METRICS[cast(Any, kind)]]
)
def test_the_best_checkpoint_is_by_the_metric(reference, tmp_path, kind, by):
    config = configured(kind, f"checkpoint.best_by={by}", f"run.dir={tmp_path}")
    done = train(config, reference, tmp_path)
    found = outcome(done.run)
    assert done.best is not None
    values = dict(found.reports(by))
    pick = min if by in ("rmse", "mae", "cross_entropy", "kl_divergence") else max
    assert values[done.best.step] == pick(values.values())
    if by in ("accuracy", "r2"):
        assert (done.best.by, found.others[0]) == ("", {by: values[found.validations[0][0]]})
        return
    assert (done.best.by, done.best.value) == (by, values[done.best.step])
    # What the sums say of the same answers agrees.
    loss = dict(found.reports("loss"))[done.best.step]
    if by == "cross_entropy":
        assert done.best.value == pytest.approx(loss, rel=1e-5)
    if by == "rmse":
        assert done.best.value == pytest.approx(loss**0.5, rel=1e-5)


@pytest.mark.parametrize("kind", ROWS)
def test_a_metric_of_another_kind_is_refused(reference, kind):
    by = "rmse" if kind == "yes_no" else "roc_auc"
    with pytest.raises(ConfigError, match=rf"checkpoint.best_by: '{by}' is not measured of .*use"):
        train(configured(kind, f"checkpoint.best_by={by}"), reference, Path("unused"))


def test_a_state_ranks_by_the_metric_and_then_the_loss():
    def heard(state: State, by: str, value: float | None, loss: float = 1.0) -> State:
        return state.validated(Metrics(loss, 3, 4, by=by, others={by: value}))

    state = heard(State(5, 0, (0.0, 0.0, 0.0), Best(2, 1.0, 0.1), 7), "rmse", 2.0)
    assert state.best == Best(5, 0.75, 1.0, by="rmse", value=2.0)
    assert (state.unimproved, state.best.figure) == (0, ("rmse", 2.0))
    assert heard(state, "rmse", 2.5).unimproved == 1
    assert heard(state, "rmse", None).unimproved == 1
    assert heard(state, "rmse", 2.0, 0.5).unimproved == 0
    assert heard(state, "rmse", 1.5, 9.0).unimproved == 0
    rising = heard(heard(state, "f1", None), "f1", 0.5)
    assert (rising.unimproved, heard(rising, "f1", 0.4).unimproved) == (0, 1)
    assert "by" not in Best(2, 1.0, 0.1).to_json()


def test_ranks_deal_out_answers_with_the_sums():
    def row(batch: int) -> Any:
        return np.arange(3 + 4) + 10.0 * batch

    def session() -> Any:
        graph = {"probabilities": SimpleNamespace(size=4)}
        return SimpleNamespace(
            reads_answers=True, graph=lambda name: graph, split=frozenset, evaluated_batch=row
        )

    others: list[Any] = []

    def team(rank: int) -> Any:
        collect = others.append if rank else lambda own: [own, *others]
        return SimpleNamespace(rank=rank, size=2, collect=collect)

    with pytest.raises(TypeError):
        # Nobody has collected anything for rank 1.
        list(dealt_out(cast(Session, session()), team(1), 5, 3))
    every = list(dealt_out(cast(Session, session()), team(0), 5, 3))
    assert [each.tolist() for each in every] == [row(batch).tolist() for batch in (5, 6, 7)]
