"""Known tables, whose best fits scikit-learn has found; ``known/make.py`` has made the files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dnnstack
import numpy as np
import pytest
from dnnstack.backends.reference.backend import ReferenceBackend
from dnnstack.training.plan import make_plan
from dnnstack.training.session import Session
from dnnstack.training.setup import Setup

from .known.nets import NETS, STEPS, net
from .test_random_nets import Compiling

KNOWN = Path(__file__).with_name("known")
FIGURES, LOSSES = (
    json.loads((KNOWN / f"{name}.json").read_text()) for name in ("figures", "losses")
)


def trained(name: str, tmp_path: Path, table: dict[str, Any], **rest: Any) -> dnnstack.Classifier:
    """A network on all rows at once."""
    file = str(KNOWN / f"{name}.csv")
    config = {
        "name": name,
        "data": {"dataset": {"csv": {"train": file, "test": file, **table}}, "validation": 0},
        "checkpoint": {"every_steps": 100_000, "best": False},
        "run": {"dir": str(tmp_path), "threads": 1},
        **rest,
    }
    config["data"]["batch_size"] = len((KNOWN / f"{name}.csv").read_text().splitlines()) - 1
    dnnstack.train(config)
    return dnnstack.load(tmp_path / name)


def test_a_line_is_fitted_as_by_least_squares(tmp_path):
    model = trained(
        "diabetes",
        tmp_path,
        {"kind": "numbers", "targets": "progression"},
        layers=[{"dense": {"units": 1, "kernel_initializer": "zeros"}}],
        loss="mse",
        optimizer={"type": "sgd", "lr": 0.1, "momentum": 0.9},
        train={"epochs": 1500},
    )
    wanted = FIGURES["diabetes"]
    assert model.evaluate().accuracy == pytest.approx(wanted["r2"], abs=1e-6)
    answers = model.predict_proba(KNOWN / "diabetes.csv")[:5, 0]
    np.testing.assert_allclose(answers, wanted["answers"], rtol=1e-5)


def test_chances_are_those_of_the_greatest_likelihood(tmp_path):
    model = trained(
        "iris",
        tmp_path,
        {"targets": "kind"},
        layers=[{"dense": {"units": 2, "kernel_initializer": "zeros"}}, "softmax"],
        loss="cross_entropy",
        optimizer={"type": "sgd", "lr": 2, "momentum": 0.98},
        train={"epochs": 3000},
    )
    wanted = FIGURES["iris"]
    assert model.evaluate().loss == pytest.approx(wanted["loss"], abs=1e-5)
    chances = model.predict_proba(KNOWN / "iris.csv")[:5, 1]
    np.testing.assert_allclose(chances, wanted["chances"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_losses_of_numbers_are_those_of_another_library(name):
    """In float64, from the same weights, with momentum and weight decay."""
    config, network, data, scaling = net(name)
    plan = make_plan(config, len(data))
    backend: Any = Compiling(ReferenceBackend(1), precision="fp64")
    session = Session(Setup(config, network, scaling, plan, data), backend)
    session.initialize()
    found = []
    for _ in range(STEPS):
        session.set_sums(np.zeros(3))
        session.run(1)
        found.append(session.training_metrics().loss)
    session.close()
    np.testing.assert_allclose(found, LOSSES[name], rtol=1e-9)


def test_pictures_of_bytes_are_answered_with_numbers_in_batches_of_any_size(tmp_path):
    draw = np.random.default_rng(4)
    pictures = draw.integers(0, 256, (24, 1, 6, 6), dtype=np.uint8)
    darkness = 1.0 - pictures.mean((1, 2, 3)) / 255
    config = {
        "name": "dark",
        "data": {"batch_size": 8, "validation": 0},
        "layers": ["flatten", {"dense": {"units": 1}}],
        "loss": "mae",
        "optimizer": {"type": "sgd", "lr": 0.01},
        "train": {"epochs": 2},
        "run": {"dir": str(tmp_path), "threads": 1},
    }
    dnnstack.train(config, data=(pictures, darkness))
    model = dnnstack.load(tmp_path / "dark")
    answers = model.predict_proba(pictures)
    assert answers.shape == (24, 1)
    each = [model.predict_proba(pictures[row : row + 1])[0] for row in range(24)]
    np.testing.assert_allclose(answers, each, rtol=1e-4, atol=1e-6)
    found = model.evaluate(pictures, darkness)
    assert found.loss == pytest.approx(np.abs(answers[:, 0] - darkness).mean(), rel=1e-4)
