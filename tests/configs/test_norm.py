"""Normalisation and dropout as a config names them."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

from ..support.stored import cases, stored

REST = """
  - flatten
  - dense: {units: 10}
data: {dataset: mnist}
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


def parsed(layer: str) -> RunConfig:
    return parse_config(f"layers:\n  - {layer}{REST}", "x.yaml")


@pytest.mark.parametrize(("layer", "message"), stored(__file__, "norm_errors.txt"))
def test_mistakes(layer, message):
    with pytest.raises(ConfigError) as caught:
        parsed(layer)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize("layer", cases(__file__, "what_is_written_is_read_again"))
def test_what_is_written_is_read_again(layer):
    config = parsed(layer)
    assert parse_config(effective_yaml(config), "y.yaml") == config
