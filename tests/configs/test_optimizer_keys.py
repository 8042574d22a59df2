"""Optimizers, groups and averages in a config: what is read, and every mistake with its place."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

REST = """
data: {dataset: mnist}
layers: [flatten, dense: {units: 10}]
train: {epochs: 1}
"""


def read(line: str) -> RunConfig:
    return parse_config(line + REST, "x.yaml")


def problem(line: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(line)
    return str(caught.value)


GOOD = [
    "optimizer: {type: adam, lr: 0.1}",
    "optimizer: {type: adamw, lr: 0.1, betas: [0.7, 0.9], eps: 1e-6}",
    "optimizer: {type: muon, lr: 0.1, rest: {type: sgd, lr: 0.2, momentum: 0.9}, iterations: 3}",
    "optimizer: {type: sgd, lr: 0.1, ema: {decay: 0.99}, lookahead: {every: 5}}",
    "optimizer: {type: sgd, lr: 0.1, groups: [{parameters: a.b, frozen: true},"
    " {parameters: ['*.c', d], kind: bias, lr: 0.3, schedule: {type: poly, max_epochs: 3}},"
    " {kind: [scale, shift], lr_factor: 64, weight_decay: 0, freeze_after_epoch: 3}]}",
]


@pytest.mark.parametrize("line", GOOD)
def test_written_and_read_again_it_is_the_same(line: str) -> None:
    config = read(line)
    text = effective_yaml(config)
    assert parse_config(text, "other.yaml") == config
    assert effective_yaml(parse_config(text, "other.yaml")) == text


def test_adamw_decays_by_default_as_in_pytorch() -> None:
    found = read("optimizer: {type: adamw, lr: 0.1}").optimizer
    assert found.weight_decay == 0.01
    assert read("optimizer: {type: adam, lr: 0.1}").optimizer.weight_decay == 0


MISTAKES = [
    (
        "optimizer: {type: adm, lr: 1}",
        "x.yaml:1:19: optimizer.type: unknown optimizer 'adm'; did you mean 'adam'?",
    ),
    (
        "optimizer: {type: adam, lr: 1, momentum: 0.9}",
        "x.yaml:1:32: optimizer.momentum: unknown key; the optimizer 'adam' takes type, "
        "lr, betas, eps, weight_decay, weight_decay_on, clip_norm, groups, ema, lookahead, swa",
    ),
    (
        "optimizer: {type: adam, lr: 1, betas: [0.9, 1]}",
        "x.yaml:1:45: optimizer.betas.1: expected a number below 1 (got 1)",
    ),
    (
        "optimizer: {type: adam, lr: 1, eps: 0}",
        "x.yaml:1:37: optimizer.eps: expected a number above 0 (got 0)",
    ),
    (
        "optimizer: {type: muon, lr: 1}",
        "x.yaml:1:1: optimizer.rest: required key is missing "
        "(The rule for all parameters that are not filters.)",
    ),
    (
        "optimizer: {type: muon, lr: 1, rest: {type: muon, lr: 1}}",
        "x.yaml:1:45: optimizer.rest.type: unknown optimizer 'muon'; expected "
        "adagrad, adam, adamw or sgd",
    ),
    (
        "optimizer: {type: sgd, lr: 1, groups: [{lr_factor: 2}]}",
        "x.yaml:1:40: optimizer.groups.0: required: parameters or kind",
    ),
    (
        "optimizer: {type: sgd, lr: 1, groups: []}",
        "x.yaml:1:39: optimizer.groups: expected a list of at least one item (got [])",
    ),
    (
        "optimizer: {type: sgd, lr: 1, groups: [{kind: gamma}]}",
        "x.yaml:1:47: optimizer.groups.0.kind.0: expected kernel, bias, scale or shift "
        "(got 'gamma')",
    ),
    (
        "optimizer: {type: sgd, lr: 1, groups: [{kind: bias, lr: 1, lr_factor: 2}]}",
        "x.yaml:1:57: optimizer.groups.0.lr: give either lr_factor or lr, not both",
    ),
    (
        "optimizer: {type: sgd, lr: 1, groups: [{kind: bias, frozen: true, "
        "freeze_after_epoch: 2}]}",
        "x.yaml:1:87: optimizer.groups.0.freeze_after_epoch: the group is always frozen; "
        "remove frozen or this key",
    ),
    (
        "optimizer: {type: sgd, lr: 1, groups: [{kind: bias, freeze_until_epoch: 3, "
        "freeze_after_epoch: 2}]}",
        "x.yaml:1:96: optimizer.groups.0.freeze_after_epoch: expected an epoch after "
        "freeze_until_epoch (3) (got 2)",
    ),
    (
        "optimizer: {type: sgd, lr: 1, ema: {decay: 1}}",
        "x.yaml:1:44: optimizer.ema.decay: expected a number below 1 (got 1)",
    ),
    (
        "optimizer: {type: sgd, lr: 1, ema: 0.99}",
        "x.yaml:1:36: optimizer.ema: expected a mapping (got 0.99)",
    ),
    (
        "schedule: {type: piecewise, factors: [1, 2]}",
        "x.yaml:1:1: schedule: required: at, at_epochs or at_fractions",
    ),
    (
        "schedule: {type: piecewise, factors: [1, 2], at: [0]}",
        "x.yaml:1:50: schedule.at: expected a point for each of 2 factors (got [0])",
    ),
    (
        "schedule: {type: piecewise, factors: [1, 2], at: [5, 3]}",
        "x.yaml:1:50: schedule.at: expected points in rising order (got [5, 3])",
    ),
    (
        "schedule: {type: piecewise, factors: [1, 2], at: [0, 5], at_epochs: [0, 1]}",
        "x.yaml:1:69: schedule.at_epochs: give either at or at_epochs, not both",
    ),
    (
        "loss: {type: mse, reduction: max}",
        "x.yaml:1:30: loss.reduction: expected mean or sum (got 'max')",
    ),
]


@pytest.mark.parametrize(("line", "expected"), MISTAKES, ids=[line for line, _ in MISTAKES])
def test_mistake(line: str, expected: str) -> None:
    if not line.startswith("optimizer"):
        line += "\noptimizer: {type: sgd, lr: 0.1}"
    assert problem(line) == expected
