"""Optimizers, groups and averages in a config: what is read, and every mistake with its place."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

from ..support.stored import cases, stored

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


GOOD = cases(__file__, "good")


@pytest.mark.parametrize("line", GOOD)
def test_written_and_read_again_it_is_the_same(line):
    config = read(line)
    text = effective_yaml(config)
    assert parse_config(text, "other.yaml") == config
    assert effective_yaml(parse_config(text, "other.yaml")) == text


def test_adamw_decays_by_default_as_in_pytorch():
    found = read("optimizer: {type: adamw, lr: 0.1}").optimizer
    assert found.weight_decay == 0.01
    assert read("optimizer: {type: adam, lr: 0.1}").optimizer.weight_decay == 0


@pytest.mark.parametrize(("line", "expected"), stored(__file__, "optimizer_errors.txt"))
def test_mistake(line, expected):
    if not line.startswith("optimizer"):
        line += "\noptimizer: {type: sgd, lr: 0.1}"
    assert problem(line) == expected
