"""The shipped airbench recipes against the figures of their author's programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dnnstack.configs import RunConfig, load_config
from dnnstack.datasets import DatasetInfo
from dnnstack.optimizers.groups import Assigned
from dnnstack.reports.summary import summarize
from dnnstack.training.assemble import assigned, build_network
from dnnstack.training.plan import Plan, make_plan

CIFAR = DatasetInfo("cifar10", (3, 32, 32), tuple("0123456789"), 50_000, 10_000)
BOTH = ("cifar10-airbench.yaml", "cifar10-airbench-muon.yaml")


def recipe(name: str) -> tuple[RunConfig, Plan, dict[str, Assigned]]:
    """Config, plan, and how each parameter that is trained is updated."""
    config = load_config(name).config
    found = assigned(config, build_network(config, CIFAR))
    return config, make_plan(config, 50_000), {one.parameter.tensor.name: one for one in found}


@pytest.mark.parametrize("name", BOTH)
def test_the_network(name):
    found = summarize(load_config(name).config, Path(name))
    assert found.parameters == 1_972_792
    assert found.forward_flops == pytest.approx(0.236e9, rel=0.01)
    shapes = [row.output_shape for row in found.rows if row.type in ("conv2d", "max_pool2d")]
    assert shapes == [
        (24, 31, 31),
        (64, 31, 31),
        (64, 15, 15),
        (64, 15, 15),
        (256, 15, 15),
        (256, 7, 7),
        (256, 7, 7),
        (256, 7, 7),
        (256, 3, 3),
        (256, 3, 3),
        (256, 1, 1),
    ]


@pytest.mark.parametrize("name", BOTH)
def test_what_stays_as_it_is(name):
    """The whitening filters and the factors of the normalisation."""
    config, _, trained = recipe(name)
    every = {p.tensor.name for p in build_network(config, CIFAR).parameters()}
    fixed = {f"batch_norm_{i}.weight" for i in range(1, 7)} | {"whitening.weight"}
    assert every - trained.keys() == fixed
    assert {n for n, one in trained.items() if one.group.freeze_after == 3} == {"whitening.bias"}


def test_rates_and_decays_of_airbench94():
    _, plan, trained = recipe("cifar10-airbench.yaml")
    assert (plan.steps_per_epoch, plan.total_steps) == (48, 476)
    k = 1024 * (1 + 1 / (1 - 0.85))
    rate, decay = 11.5 / k, 0.0153 * 1024 / k
    assert plan.rates.max() == pytest.approx(rate, rel=1e-6)
    t = np.arange(476)
    rises, falls = 0.2 + 0.8 * t / 109, 1 - 0.93 * (t - 109) / (476 - 109)
    np.testing.assert_allclose(plan.rates, rate * np.where(t < 109, rises, falls), rtol=1e-5)
    for name, one in trained.items():
        factor = 64 if name.startswith("batch_norm") else 1
        assert one.lr_factor == factor, name
        assert one.weight_decay == pytest.approx(decay / (rate * factor)), name
    decays = plan.tables["lookahead.decays"]
    done = np.arange(1, 477)
    meets = done % 5 == 0
    want = 0.95**5 * (done / 476) ** 3
    np.testing.assert_allclose(decays[meets][:-1], want[meets][:-1], rtol=1e-5)
