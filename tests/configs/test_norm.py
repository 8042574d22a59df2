"""Normalisation and dropout as a config names them."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

from ..support.stored import stored

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


@pytest.mark.parametrize(
    "layer",
    [
        "batch_norm",
        "batch_norm: {momentum: 0.4, eps: 1e-12, scale: false, bias_initializer: ones}",
        "batch_norm: {scale_initializer: {normal: {std: 0.1, mean: 1}}}",
        "lrn: {size: 3, alpha: 5e-4, beta: 0.5, k: 1}",
        "lcn: {size: 9}",
        "dropout: {rate: 0}",
    ],
)
def test_what_is_written_is_read_again(layer):
    config = parsed(layer)
    assert parse_config(effective_yaml(config), "y.yaml") == config
