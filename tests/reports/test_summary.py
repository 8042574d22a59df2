from __future__ import annotations

from pathlib import Path

import pytest
from dnnstack.common.errors import ConfigError, DatasetError, ShapeError
from dnnstack.configs import load_config, parse_config
from dnnstack.reports.summary import summarize
from dnnstack.reports.summary_text import as_text
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


@pytest.mark.parametrize("algorithm", ["auto", "im2col"])
def test_unrolling_is_that_of_the_lecture(algorithm):
    """C1, C3 and C5 of LeNet-5; the toy of 3x3 pixels and a window of 2x2; and strides."""
    rows = summarize(load_config("lenet5-1998.yaml").config, Path("x")).rows
    found = {row.name: row.unrolled for row in rows if row.unrolled is not None}
    assert found == {"c1": 25 * 784 / 1024, "c3": 150 * 100 / 1176, "c5": 1}
    how = f"algorithm: {algorithm}"
    layers = (
        "layers=[{max_pool2d: {pool_size: 9}}, "
        f"{{conv2d: {{filters: 5, kernel_size: 2, {how}}}}}, "
        f"{{conv2d: {{filters: 3, kernel_size: [1, 2], stride: [2, 1], {how}}}}}, "
        "flatten, {dense: {units: 10}}]"
    )
    summary = summarize(
        load_config("lenet.yaml", [layers, "optimizer.groups=null"]).config, Path("x")
    )
    rows = {row.name: row.unrolled for row in summary.rows}
    assert (rows["conv2d_1"], rows["conv2d_2"], rows["dense_1"]) == (16 / 9, 2 / 4, None)
    assert "      1.78\n" in as_text(summary)
    assert "unrolled" not in as_text(summary, 66)
    without = load_config("mlp.yaml").config
    assert "unrolled" not in as_text(summarize(without, Path("x")))
