from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.common.errors import ConfigError, DatasetError, ShapeError
from dnnstack.configs import load_config, parse_config
from dnnstack.reports.summary import summarize
from dnnstack.reports.units import bytes_text

from ..support.stored import cases

# The figures of CMU's lecture on VGG-16, in bytes: weights without biases, and outputs a picture.
KIB, MIB = 1024, 1024**2


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("data.validation=70000", "70000 of 60000 training samples leaves 0"),
        ("data.batch_size=70000", "more than the 55000 training samples"),
        ("train.accumulate=7", "cannot be computed in 7 parts"),
    ],
)
def test_what_cannot_be_trained_is_refused(override, reason):
    with pytest.raises((ConfigError, DatasetError), match=reason):
        summarize(load_config("lenet.yaml", [override]).config, Path("lenet.yaml"))


def test_a_shape_error_names_the_file():
    text = "data: {dataset: mnist}\nlayers: [{dense: {units: 10}}]\n"
    rest = "optimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"
    with pytest.raises(ShapeError, match=r"^flat\.yaml:2:10: layer 1 'dense_1'"):
        summarize(parse_config(text + rest, "flat.yaml"), Path("flat.yaml"))


@pytest.mark.parametrize(("count", "text"), cases(__file__, "bytes"))
def test_bytes(count, text):
    assert bytes_text(count) == text
