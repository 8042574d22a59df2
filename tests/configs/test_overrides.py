"""``--set key.path=value``."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, parse_config

from ..support.stored import beside, stored

TEXT = beside(__file__, "overrides_text.yaml")


def load(*overrides: str) -> RunConfig:
    return parse_config(TEXT, "x.yaml", overrides)


def message(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    return str(caught.value)


@pytest.mark.parametrize(("override", "said"), stored(__file__, "override_values.txt"))
def test_sets(override, said):
    """A key, and the value that it then has."""
    found: object = load(override)
    path, _, value = said.partition(" ")
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, tuple) else getattr(found, part)
    assert repr(found) == value


def test_later_ones_win_and_build_on_earlier_ones():
    config = load("schedule=fixed", "schedule.warmup.steps=5", "schedule.warmup.steps=6", "seed=3")
    assert config.model_dump()["schedule"] == {
        "type": "fixed",
        "warmup": {"steps": 6, "start_factor": 0.1},
    }


def test_nothing_else_changes():
    plain, changed = load().model_dump(), load("layers.0.filters=32").model_dump()
    changed["layers"][0]["conv2d"]["filters"] = 8
    assert plain == changed


@pytest.mark.parametrize(("override", "expected"), stored(__file__, "overrides.txt"))
def test_message(override, expected):
    """The place is the override, not the file's line, where nothing is wrong."""
    assert message(override) == f"--set {override}: {expected}"


@pytest.mark.parametrize(
    "override", ["x" * 100_000, "x" * 100_000 + "=1", "layers.0." + "y" * 100_000 + "=1"]
)
def test_a_message_does_not_repeat_a_long_override(override):
    assert len(message(override)) < 2000


def test_both_of_a_pair_set_on_the_command_line_is_an_error():
    assert message("train.max_steps=5", "train.epochs=1") == (
        "--set train.max_steps=5: train.max_steps: give either epochs or max_steps, not both"
    )


def test_a_change_of_another_key_is_not_blamed():
    with pytest.raises(ConfigError) as caught:
        parse_config(TEXT.replace("epochs: 10", "seed: 1"), "x.yaml", ["train.log_every=5"])
    assert "x.yaml:11:1: train: required: epochs or max_steps" in str(caught.value)


def test_errors_of_file_and_overrides_come_together():
    with pytest.raises(ConfigError) as caught:
        parse_config(TEXT.replace("0.9", "x"), "x.yaml", ["seed=x", "name=/", "lr=1"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "x.yaml: 4 errors"
    assert lines[1] == "x.yaml:9:43: optimizer.momentum: expected a number (got 'x')"
    assert lines[2] == "--set seed=x: seed: expected a whole number (got 'x')"
    assert lines[3].startswith("--set name=/: name: expected a name")
    assert lines[4] == "--set lr=1: lr: unknown key; did you mean 'optimizer.lr'?"


@pytest.mark.parametrize("item", ["kind", "1"])
def test_items_without_names_are_given_by_index(item):
    groups = "optimizer.groups=[{kind: bias, lr_factor: 2}]"
    key = f"optimizer.groups.{item}.frozen"
    assert message(groups, f"{key}=true") == (
        f"--set {key}=true: {key}: 'optimizer.groups' has one item without names; the first one is "
        "'optimizer.groups.0'"
    )
