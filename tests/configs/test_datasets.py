"""Data sets in a config: their options, mistakes in them, and how they are written back."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

from ..support.stored import cases, stored

REST = "\nlayers: [relu]\noptimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"


def config(dataset: str) -> RunConfig:
    return parse_config(f"data: {{dataset: {dataset}}}{REST}", "x.yaml")


@pytest.mark.parametrize("dataset", cases(__file__, "what_is_written_back_reads_as_the_same"))
def test_what_is_written_back_reads_as_the_same(dataset):
    first = config(dataset)
    again = parse_config(effective_yaml(first), "again.yaml")
    assert again == first
    assert effective_yaml(again) == effective_yaml(first)


def test_a_long_table_is_broken_into_lines():
    rows = ", ".join(f"[{a}, {b}, {a * b}]" for a in range(10) for b in range(10))
    targets = ", ".join("0" for _ in range(100))
    first = config(f"{{table: {{inputs: [{rows}], targets: [{targets}]}}}}")
    text = effective_yaml(first)
    assert max(map(len, text.splitlines())) <= 100
    assert parse_config(text, "again.yaml") == first


@pytest.mark.parametrize(("dataset", "message"), stored(__file__, "dataset_errors.txt"))
def test_a_mistake_is_answered_with_its_place(dataset, message):
    with pytest.raises(ConfigError, match=message) as caught:
        config(dataset)
    assert "x.yaml:1:" in str(caught.value)


def test_a_column_of_numbers_may_be_written_without_inner_brackets():
    assert config("{table: {inputs: [0, 1], targets: [0, 1]}}") == config(
        "{table: {inputs: [[0], [1]], targets: [0, 1]}}"
    )
