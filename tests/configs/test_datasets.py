"""Data sets in a config: their options, mistakes in them, and how they are written back."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config

REST = "\nlayers: [relu]\noptimizer: {type: sgd, lr: 0.1}\ntrain: {epochs: 1}\n"


def config(dataset: str) -> RunConfig:
    return parse_config(f"data: {{dataset: {dataset}}}{REST}", "x.yaml")


@pytest.mark.parametrize(
    "dataset",
    [
        "cifar10",
        "fashion_mnist",
        "{cifar100: {labels: coarse}}",
        "{image_folder: {train: pics, size: 32}}",
        "{image_folder: {train: /a/b c, test: x, size: [32, 48], classes: [b, a], on_error: skip}}",
        "{image_folder: {train: pics, size: 224, classes: 1000, fit: resize, mode: grey}}",
        "{table: {inputs: [[0, 0.5], [-1, 1e3]], targets: [0, 1]}}",
        '{table: {inputs: [[0], [1]], targets: [0, 1], classes: ["no", "a: b"]}}',
    ],
)
def test_what_is_written_back_reads_as_the_same(dataset: str) -> None:
    first = config(dataset)
    again = parse_config(effective_yaml(first), "again.yaml")
    assert again == first
    assert effective_yaml(again) == effective_yaml(first)


def test_a_long_table_is_broken_into_lines() -> None:
    rows = ", ".join(f"[{a}, {b}, {a * b}]" for a in range(10) for b in range(10))
    targets = ", ".join("0" for _ in range(100))
    first = config(f"{{table: {{inputs: [{rows}], targets: [{targets}]}}}}")
    text = effective_yaml(first)
    assert max(map(len, text.splitlines())) <= 100
    assert parse_config(text, "again.yaml") == first


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("cifar", "unknown dataset 'cifar'; did you mean 'cifar10'"),
        ("{cifar10: {labels: fine}}", r"data\.dataset\.cifar10\.labels: unknown key"),
        ("{cifar100: {labels: rough}}", r"labels: expected fine or coarse \(got 'rough'\)"),
        ("image_folder", "required key is missing"),
        ("{image_folder: {train: p}}", r"image_folder\.size: required key is missing"),
        ("{strokes: {train_count: 0}}", r"train_count: expected a number of at least 1 \(got 0\)"),
        ("{strokes: {train_count: 2.5}}", r"train_count: expected a whole number \(got 2\.5\)"),
        ("{strokes: {test_count: true}}", r"test_count: expected a whole number \(got true\)"),
        ("{strokes: {count: 5}}", "count: unknown key"),
        ("{image_folder: {size: 8}}", r"image_folder\.train: required key is missing"),
        ("{image_folder: {train: p, size: [0, 8]}}", "size: expected a whole number of at least 1"),
        ("{image_folder: {train: p, size: 8, fit: stretch}}", "fit: expected crop or resize"),
        ("{image_folder: {train: p, size: 8, mode: cmyk}}", "mode: expected rgb or grey"),
        ("{image_folder: {train: p, size: 8, on_error: no}}", "on_error: expected stop or skip"),
        ("{table: {inputs: [[1, 2], [3]], targets: [0, 1]}}", "rows of the same length: the first"),
        ("{table: {inputs: [[1], [2]], targets: [0, -1]}}", "targets"),
        ("{image_folder: {train: p, size: 0}}", "size: expected a whole number of at least 1"),
        ("{image_folder: {train: p, size: 5000}}", "size: expected at most 4096 pixels"),
        ("{image_folder: {train: p, size: 8, classes: 1}}", "classes: expected a number from 2 to"),
        (
            "{image_folder: {train: p, size: 8, classes: [a, a]}}",
            "classes: expected each name once",
        ),
        (
            '{image_folder: {train: p, size: 8, classes: ["\\u00e9", "e\\u0301"]}}',
            "classes: expected each name once, in one Unicode form",
        ),
        (
            "{image_folder: {train: p, size: 8, classes: [a, 1]}}",
            "classes: expected a list of at least",
        ),
        ("{image_folder: {train: p, size: 8, test_fraction: 1}}", "test_fraction: "),
        ('{image_folder: {train: "a\\u0007", size: 8}}', "train: expected a path without control"),
        ("table", "required key is missing"),
        ("{table: {inputs: [], targets: []}}", "inputs: expected a list of at least one item"),
        ("{table: {inputs: [0, 1], targets: [0, 1, 1]}}", r"targets: .*\(2\), got 3"),
        ("{table: {inputs: [[1], []], targets: [0, 1]}}", "expected a list of numbers"),
        ("{table: {inputs: [[1], [.inf]], targets: [0, 1]}}", "expected a list of numbers"),
        ("{table: {inputs: [[1], [2]], targets: [0, 0.5]}}", "targets"),
        (
            "{table: {inputs: [[1], [2]], targets: [0, 1], classes: [a]}}",
            "classes: expected a list of",
        ),
    ],
)
def test_a_mistake_is_answered_with_its_place(dataset: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        config(dataset)
    assert "x.yaml:1:" in str(caught.value)


def test_a_column_of_numbers_may_be_written_without_inner_brackets() -> None:
    assert config("{table: {inputs: [0, 1], targets: [0, 1]}}") == config(
        "{table: {inputs: [[0], [1]], targets: [0, 1]}}"
    )
