"""Whatever network is drawn, a check finds nothing wrong with what a sound device computes."""

from __future__ import annotations

import json

from dnnstack.configs import parse_config
from dnnstack.reports.check import check_network
from dnnstack.reports.step import take_step
from dnnstack.training.assemble import build_network
from dnnstack.training.normalization import preprocessing
from dnnstack.training.plan import make_plan
from dnnstack.training.setup import Setup
from hypothesis import given, settings

from ..support.opened import opened
from ..support.random_nets import trainings


@settings(max_examples=25, deadline=None)
@given(trainings())
def test_any_network_is_checked_and_shown(training):
    config = parse_config(json.dumps(training.config), "drawn.yaml")
    network, data = build_network(config, training.info), training.data
    scaling = preprocessing(config, training.info)
    setup, cpu = Setup(config, network, scaling, make_plan(config, len(data)), data), opened("cpu")
    found = check_network("drawn", setup, cpu, 5)
    wrong = {each.test: each.text for each in found.verdicts if each.verdict == "wrong"}
    assert {"gradients", "device", "samples", "resume"}.isdisjoint(wrong), wrong
    step = take_step("drawn", setup, cpu)
    assert all(f" = {name}  " in step.as_text() for name in step.tensors if name != "step")
    json.dumps([found.to_json(), step.to_json()], allow_nan=False)
