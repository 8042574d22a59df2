"""A good config, in which one line after the other is spoilt."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import parse_config

GOOD = {
    "data": "data: {dataset: mnist}",
    "layers": "layers: [flatten, dense: {units: 10}]",
    "optimizer": "optimizer: {type: sgd, lr: 0.1}",
    "train": "train: {epochs: 1}",
}


def with_line(line: str) -> str:
    """A good config in which ``line`` stands first, instead of its own key's good line."""
    key = line.partition(":")[0]
    return "\n".join([line, *(good for name, good in GOOD.items() if name != key)])


def message(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "x.yaml")
    return str(caught.value)
