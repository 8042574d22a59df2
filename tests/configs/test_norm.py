"""Normalisation and dropout as a config names them."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

REST = """
  - flatten
  - dense: {units: 10}
data: {dataset: mnist}
optimizer: {type: sgd, lr: 0.1}
train: {epochs: 1}
"""


def parsed(layer: str) -> RunConfig:
    return parse_config(f"layers:\n  - {layer}{REST}", "x.yaml")


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (
            "lrn: {size: 4}",
            "(lrn): size: expected an odd number, so that the window has a middle (got 4)",
        ),
        ("lcn: {size: 17}", "(lcn): size: expected a number of at most 15 (got 17)"),
        ("lcn: {beta: 0}", "(lcn): beta: expected a number of at least 0.01 (got 0)"),
        ("lrn: {k: 0}", "(lrn): k: expected a number of at least 1e-05 (got 0)"),
        ("lrn: {alpha: -1}", "(lrn): alpha: expected a number of at least 0 (got -1)"),
        ("dropout: {rate: -0.1}", "(dropout): rate: expected a number of at least 0 (got -0.1)"),
        ("dropout: {rate: 1}", "(dropout): rate: expected a number below 1 (got 1)"),
        ("batch_norm: {eps: 0}", "(batch_norm): eps: expected a number above 0 (got 0)"),
        (
            "batch_norm: {momentum: 1.5}",
            "(batch_norm): momentum: expected a number of at most 1 (got 1.5)",
        ),
        ("batch_norm: {momentum: 0}", "(batch_norm): momentum: expected a number above 0 (got 0)"),
        ("batch_norm: {epsilon: 1}", "(batch_norm): epsilon: unknown key; did you mean 'eps'?"),
    ],
)
def test_mistakes(layer: str, message: str) -> None:
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
def test_what_is_written_is_read_again(layer: str) -> None:
    config = parsed(layer)
    assert parse_config(effective_yaml(config), "y.yaml") == config
