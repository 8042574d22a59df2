"""Evaluations, comparisons, ensembles, predictions of numbers and questions, as people see them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import dnnstack
import numpy as np
import pytest
from dnnstack.cli.main import main
from dnnstack.common.errors import ConfigError, UsageError
from dnnstack.configs.search import Search
from dnnstack.datasets import Picture
from dnnstack.many.outcome import Outcome
from dnnstack.many.sweeping import check_objective
from dnnstack.reports.predict_text import as_text, headline
from dnnstack.reports.sweep_text import value_text
from dnnstack.training.inference.predict import Answer, Prediction, columns
from PIL import Image

from ..training.test_metrics import configured

X = np.array([[0, 1], [1, 0.123], [2, 2], [3, 1]], np.float32)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs each of numbers and of questions, ``numbers``, ``numbers-2`` and so on."""
    folder = tmp_path_factory.mktemp("runs")
    for kind in ("numbers", "yes_no"):
        for seed in (1, 2):
            overrides = (f"name={kind}", f"run.dir={folder}", f"seed={seed}", "data.split_seed=1")
            config = configured(kind, *overrides)
            dnnstack.train(config, device="numpy", verbose=False)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main([*arguments, "--device", "numpy"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("kind", ["numbers", "yes_no"])
def test_eval_shows_json_text_and_plots_of_the_kind(runs, capsys, kind):
    named = ["eval", "--run", str(runs / kind)]
    found = json.loads(told(capsys, *named, "--json", "--no-plots"))
    text = told(capsys, *named)
    drawn = runs / kind / "eval-test" / ("scatter" if kind == "numbers" else "roc")
    with Image.open(drawn.with_suffix(".png")) as picture:
        assert picture.size == (924, 484)
    assert drawn.with_suffix(".svg").read_text().startswith("<?xml")
    assert (found["kind"], found["count"], len(found["worst"])) == (kind, 7, 7)
    errors = [each["error"] for each in found["worst"]]
    assert errors == sorted(errors, reverse=True)
    assert found["worst"][0]["source"].startswith(f"row {found['worst'][0]['index'] + 1}: ")
    if kind == "numbers":
        assert f"R2        {found['r2']:.4f}\nRMSE      {found['rmse']:.4f}\n" in text
        assert found["outputs"][1]["residuals"].keys() >= {"mean", "median", "max"}
    else:
        assert f"ROC AUC   {found['roc_auc']:.4f}\nthreshold 0.5 " in text
        every = json.loads(told(capsys, *named, "--json", "--no-plots", "--threshold", "0%"))
        assert (every["threshold"], every["recall"]) == (0.0, 1.0)
        assert [each["fn"] + each["tn"] for each in every["outputs"]] == [0, 0]


def test_models_answer_by_the_kind(runs):
    with dnnstack.load(runs / "numbers", device="numpy") as model:
        found = model.evaluate(split="validation")
        assert model.predict(X).dtype == np.float32
        assert model.predict(X).shape == (4, 2)
        assert repr(found).startswith("<Evaluation of ")
        assert f"4 samples, R2 {found.accuracy:.4f}, loss" in repr(found)
        with pytest.raises(ConfigError, match="threshold: decides between yes and no"):
            model.evaluate(threshold=0.5)
        assert found.accuracy == found.measured.overall["r2"]
        assert model.evaluate(X, model.predict(X)).measured.overall["rmse"] == pytest.approx(0)
    with dnnstack.load(runs / "yes_no", device="numpy") as model:
        assert (model.predict(X) == (model.predict_proba(X) > 0.5)).all()
        assert model.evaluate().accuracy == model.evaluate().measured.overall["accuracy"]


def test_two_networks_are_compared_by_errors_and_by_answers(runs, capsys):
    names = [str(runs / name) for name in ("numbers", "numbers-2", "yes_no", "yes_no-2")]
    found = dnnstack.compare(*names[:2], device="numpy")
    r2 = [each.measured.overall["r2"] for each in (found.first, found.second)]
    assert found.difference == pytest.approx(cast(Any, r2[0]) - cast(Any, r2[1]), abs=1e-6)
    assert found.only_first + found.only_second + found.both == found.count == 7
    assert found.to_json()["sign_flip_p"] == found.p
    text = told(capsys, "compare", *names[:2])
    assert f"difference           {found.difference:+.4f} R2\n" in text
    assert "the second is nearer" in text
    assert "sign-flip test" in text
    asked = dnnstack.compare(*names[2:], device="numpy")
    accuracies = [each.accuracy for each in (asked.first, asked.second)]
    assert asked.count == 14
    assert asked.difference == pytest.approx(accuracies[0] - accuracies[1])
    assert "14 answers\n" in told(capsys, "compare", *names[2:])
    with pytest.raises(dnnstack.DnnstackError, match="answers with questions of yes or no"):
        dnnstack.compare(names[0], names[2], device="numpy")


def test_an_ensemble_of_numbers_averages_them(runs, capsys):
    names = [runs / "numbers", runs / "numbers-2"]
    with dnnstack.load_ensemble(names, device="numpy") as model:
        alone = [dnnstack.load(name, device="numpy").predict(X) for name in names]
        assert model.predict(X) == pytest.approx(np.mean(alone, 0), abs=1e-6)
        found = model.evaluate()
        best = max(member.accuracy for member in found.members)
        assert found.over_best.difference == pytest.approx(found.accuracy - best, abs=1e-6)
        assert found.to_json()["ensemble"]["members"][0]["rmse"] > 0
        with pytest.raises(UsageError, match="give numbers, one for each network"):
            model.fit_weights()
    with pytest.raises(UsageError, match="votes: needs classes, but the targets are numbers"):
        dnnstack.load_ensemble(names, combine="votes", device="numpy")
    text = told(capsys, "eval", "--ensemble", ",".join(map(str, names)), "--no-plots")
    assert "combined  the average of the answers" in text
    assert f"the best network here, R2 {best:.4f}" in text


def test_runs_and_objectives_are_told_as_r2(runs, capsys):
    assert main(["runs", "--runs-dir", str(runs)]) == 0
    text = capsys.readouterr().out
    assert text.count(" R2 ") == 2
    assert text.count("%") == 2
    assert [value_text("r2", 0.5), value_text("f1", 0.5), value_text("seconds", 2)] == [
        "0.5000", "50.00%", "2.00"
    ]  # fmt: skip
    check_objective(Search((), ("rmse", "seconds")), "numbers")
    for name, kind in (("accuracy", "numbers"), ("r2", "class")):
        with pytest.raises(ConfigError, match=f"search.objective: '{name}' is not measured of"):
            check_objective(Search((), (name,)), cast(Any, kind))


def test_an_outcome_reports_each_metric_of_its_validations():
    found = Outcome(
        validations=((1, 0.5, 2.0), (2, 0.75, 1.0)), others=({"rmse": 3.0}, {}), measure="r2"
    )
    assert found.reports("r2") == [(1, 0.5), (2, 0.75)]
    assert found.reports("loss") == [(1, 2.0), (2, 1.0)]
    assert (found.reports("rmse"), found.reports("accuracy")) == ([(1, 3.0)], [])


def test_predictions_name_every_number_and_question():
    picture = Picture(np.zeros((1, 4, 4), np.uint8), ("scaled",))
    top = (Answer("age", 0, 31.25), Answer("-size", 1, 0.5))
    numbers = Prediction(Path("a.png"), top, picture, kind="numbers")
    assert headline(numbers, "a") == "a: age 31.25, -size 0.5"
    assert numbers.to_json()["numbers"] == {"age": 31.25, "-size": 0.5}
    assert numbers.to_row() == ("a.png", "scaled", "31.25", "0.5")
    assert "scaled" in as_text(numbers, "a")
    assert "%" not in as_text(numbers, "a")
    answers = (Answer("wet", 0, 0.3), Answer("warm", 1, 0.31))
    asked = Prediction(Path("a.png"), answers, picture, kind="yes_no", threshold=0.3)
    assert repr(asked) == "<Prediction of 'a.png': wet no (30.0%), warm yes (31.0%)>"
    assert [each["answer"] for each in asked.to_json()["answers"]] == ["no", "yes"]
    assert asked.to_row() == ("a.png", "scaled", "no", "yes", "0.3", "0.31")
    assert len(columns(("wet", "warm"), "yes_no")) == len(asked.to_row())
    assert columns(("age",), "numbers") == ("path", "preprocessing", "number:age")
