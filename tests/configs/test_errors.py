"""Every mistake in a config gives one line: where, which key, what was expected."""

from __future__ import annotations

import pytest
from dnnstack.configs import parse_config

from ..support.config_errors import GOOD, message, with_line
from ..support.stored import beside, stored


@pytest.mark.parametrize(("line", "expected"), stored(__file__, "errors.txt"))
def test_message(line, expected):
    assert message(with_line(line)) == expected


def test_the_good_config_is_good():
    parse_config("\n".join(GOOD.values()), "x.yaml")


def test_all_errors_at_once_in_the_order_of_the_file():
    text = beside(__file__, "errors_at_once.yaml")
    assert f"{message(text)}\n" == beside(__file__, "errors_at_once.txt")


def test_a_misspelt_type_hides_no_other_mistake():
    """They are those of the type that was meant, or those that every type would have."""
    line = "optimizer: {type: sdg, lr: fast, momentun: 0.9}"
    assert message(with_line(line)).splitlines()[1:] == [
        "x.yaml:1:19: optimizer.type: unknown optimizer 'sdg'; did you mean 'sgd'?",
        "x.yaml:1:28: optimizer.lr: expected a number (got 'fast')",
        "x.yaml:1:34: optimizer.momentun: unknown key; did you mean 'momentum'?",
    ]
    assert message(with_line(line.replace("sdg", "foo"))).splitlines()[1:] == [
        "x.yaml:1:19: optimizer.type: unknown optimizer 'foo'; "
        "expected adagrad, adam, adamw, lion, muon, rmsprop or sgd",
        "x.yaml:1:28: optimizer.lr: expected a number (got 'fast')",
    ]
    assert "adagrad, adam, adamw, lion, muon, rmsprop or sgd (got nothing)" in message(
        with_line("optimizer: {type: , lr: 0.1}")
    )


def test_missing_sections_are_all_named():
    assert message("seed: 1").splitlines()[1:] == [
        "x.yaml:1:1: data: required key is missing (What to train on.)",
        "x.yaml:1:1: layers: required key is missing (The network, from the input to the output.)",
        "x.yaml:1:1: optimizer: required key is missing (How the parameters are updated.)",
        "x.yaml:1:1: train: required key is missing (How long to train.)",
    ]


def test_a_long_word_is_cut():
    text = message(with_line(f"layers: [{'x' * 70_000}]"))
    assert text.startswith(f"x.yaml:1:10: layer 1: unknown layer '{'x' * 60}...'; expected relu")


def test_long_words_of_many_errors_are_cut():
    """Otherwise a file of a megabyte would have a message of fifty."""
    layers = ", ".join(f"{{conv2d: {{{'x' * 900}{n}: 1}}}}" for n in range(60))
    text = message(with_line(f"layers: [{layers}]"))
    assert text.startswith("x.yaml: ")
    assert text.splitlines()[-1].startswith("... and ")
    assert len(text) < 12_000


def test_very_many_errors_are_cut():
    lines = message(with_line(f"layers: [{', '.join(['dens'] * 200)}]")).splitlines()
    assert lines[0] == "x.yaml: 200 errors"
    assert lines[-1] == "... and 150 more"
    assert len(lines) == 52
