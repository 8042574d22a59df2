"""Rates of groups and of the rest under Muon, where a min_lr makes them no multiple."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, parse_config
from dnnstack.datasets import describe
from dnnstack.training.assemble import assigned, build_network
from dnnstack.training.plan import make_plan
from numpy.typing import NDArray

from ..support.frozen import changed
from ..support.stored import cases
from ..support.trainings import session_of

Make = Callable[..., RunConfig]
Rates = dict[str, NDArray[np.float64]]

HEAD = """
data: {dataset: mnist, batch_size: 4, validation: 0}
layers:
  - conv2d: {filters: 2, kernel_size: 3}
  - flatten
  - dense: {units: 10}
train: {max_steps: 8}
"""


def rates(text: str) -> Rates:
    """The rate of every parameter at every step."""
    config = parse_config(HEAD + text, "x.yaml")
    plan = make_plan(config, 32)
    tables = {"rates": plan.rates, **plan.tables}
    found = assigned(config, build_network(config, describe("mnist")))
    return {
        one.parameter.tensor.name: tables[one.rates].astype(np.float64) * one.lr_factor
        for one in found
    }


def test_rates_are_what_they_were():
    """With a min_lr they are those of CosineAnnealingLR(optimizer, 8, eta_min=0.05) of PyTorch."""
    found = {name: rates(text) for name, text in cases(__file__, "configs").items()}
    assert changed(__file__, found, rtol=1e-6) == []


@pytest.mark.parametrize(
    "schedule", ["fixed", "cosine", "{type: poly, power: 2}", "{type: one_cycle}"]
)
def test_rates_that_are_a_multiple_share_a_table(schedule):
    text = (
        "optimizer: {type: muon, lr: 0.4, rest: {type: sgd, lr: 0.1}, "
        f"groups: [{{kind: bias, lr: 0.02}}]}}\nschedule: {schedule}\n"
    )
    assert make_plan(parse_config(HEAD + text, "x.yaml"), 32).tables == {}
    found = rates(text)
    np.testing.assert_allclose(found["dense_1.weight"], found["conv2d_1.weight"] / 4)
    np.testing.assert_allclose(found["dense_1.bias"], found["conv2d_1.weight"] / 20)


@pytest.mark.parametrize(
    "chosen",
    [
        "{type: sgd, lr: 0.4, groups: [{kind: kernel, frozen: true}, {kind: bias, lr: 0.1}]}",
        "{type: muon, lr: 0.4, rest: {type: sgd, lr: 0.1}, groups: [{kind: kernel, frozen: true}]}",
    ],
)
def test_a_group_is_trained_as_if_its_rate_were_the_optimizers(tiny, backend, chosen):
    """To the last bit, through all steps of the schedule."""
    alone = "{type: sgd, lr: 0.1, groups: [{kind: kernel, frozen: true}]}"
    ends = []
    for each in (chosen, alone):
        cosine = "schedule={type: cosine, min_lr: 0.05}"
        # Two nets that are timed apart may be given other layouts, and then other roundings.
        session = session_of(tiny(f"optimizer={each}", cosine, "run.tune=false"), backend)
        begun = session.arrays()
        for steps in (10, 10, 5):
            session.run(steps)
        ends.append(session.arrays())
        session.close()
    assert any((ends[0][name] != begun[name]).any() for name in begun if name.endswith("bias"))
    for name, values in ends[1].items():
        np.testing.assert_array_equal(ends[0][name], values, name)


def test_a_milestone_of_a_groups_schedule_is_named_with_its_path(tiny):
    group = "{kind: bias, schedule: {type: multistep, milestones: [99]}}"
    with pytest.raises(ConfigError, match=r"^optimizer\.groups\.0\.schedule\.milestones: step 99"):
        make_plan(tiny(f"optimizer.groups=[{group}]"), 200)


@pytest.mark.parametrize(
    "more",
    [
        (),
        ("share={bits: {'*.weight': 3}}",),
        ("train.accumulate=4", "optimizer.momentum=0.9"),
    ],
)
def test_a_decay_by_layers_is_that_of_a_group(tiny: Make, backend: Backend, more: list[str]):
    found = []
    for text in ("layer_decay=0.5", "groups=[{parameters: conv2d*, lr_factor: 0.5}]"):
        session = session_of(tiny(*more, f"optimizer.{text}", "run.tune=false"), backend)
        session.run(3)
        found.append(session.arrays())
        session.close()
    decayed, grouped = found
    for name, array in grouped.items():
        assert array.tobytes() == decayed[name].tobytes(), name
