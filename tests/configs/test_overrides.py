"""``--set key.path=value``."""

from __future__ import annotations

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, parse_config

TEXT = """\
data: {dataset: mnist}
layers:
  - conv2d: {filters: 8, kernel_size: 3}
  - relu
  - conv2d: {filters: 16, kernel_size: 3}
  - leaky_relu
  - flatten
  - dense: {units: 10, name: output}
optimizer: {type: sgd, lr: 0.1, momentum: 0.9}
schedule: {type: step, step_size: 100}
train: {epochs: 10}
"""


def load(*overrides: str) -> RunConfig:
    return parse_config(TEXT, "x.yaml", overrides)


def message(*overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=7", "seed", 7),
        ("seed = 7", "seed", 7),
        ("optimizer.lr=5e-2", "optimizer.lr", 0.05),
        ("optimizer.nesterov=true", "optimizer.nesterov", True),
        ("run.threads=2", "run.threads", 2),
        ("run.dir=a=b", "run.dir", "a=b"),
        ("run.dir='1'", "run.dir", "1"),
        ("data.normalize.mean=[0.1, 0.2]", "data.normalize.mean", (0.1, 0.2)),
        ("data.dataset=strokes", "data.dataset.type", "strokes"),
        ("data.dataset.strokes.train_count=7", "data.dataset.train_count", 7),
        ("data.dataset={strokes: {train_count: 7}}", "data.dataset.train_count", 7),
        ("layers.0.filters=32", "layers.0.filters", 32),
        ("layers.0.conv2d.filters=32", "layers.0.filters", 32),
        ("layers.conv2d_2.filters=32", "layers.2.filters", 32),
        ("layers.dense.units=32", "layers.5.units", 32),
        ("layers.output.units=32", "layers.5.units", 32),
        ("layers.0.kernel_size=[3, 5]", "layers.0.kernel_size", (3, 5)),
        ("layers.0.kernel_initializer=he_normal", "layers.0.kernel_initializer.type", "he_normal"),
        ("layers.0.kernel_initializer.normal.std=0.2", "layers.0.kernel_initializer.std", 0.2),
        ("layers.1.name=first", "layers.1.name", "first"),
        ("layers.3.negative_slope=0.2", "layers.3.negative_slope", 0.2),
        ("layers.1=tanh", "layers.1.type", "tanh"),
        ("layers.1={leaky_relu: {negative_slope: 0.5}}", "layers.1.negative_slope", 0.5),
        ("loss.label_smoothing=0.1", "loss.label_smoothing", 0.1),
        ("schedule.gamma=0.5", "schedule.gamma", 0.5),
        ("schedule=cosine", "schedule.type", "cosine"),
        ("schedule.warmup.steps=5", "schedule.warmup.steps", 5),
        ("schedule.step_size_epochs=2", "schedule.step_size", None),
        ("train.max_steps=50", "train.epochs", None),
        ("train.max_steps=50", "train.max_steps", 50),
        ("checkpoint.every_steps=50", "checkpoint.every_epochs", None),
    ],
)
def test_sets(override: str, path: str, value: object) -> None:
    found: object = load(override)
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, tuple) else getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_later_ones_win_and_build_on_earlier_ones() -> None:
    config = load("schedule=fixed", "schedule.warmup.steps=5", "schedule.warmup.steps=6", "seed=3")
    assert config.model_dump()["schedule"] == {
        "type": "fixed",
        "warmup": {"steps": 6, "start_factor": 0.1},
    }


def test_nothing_else_changes() -> None:
    plain, changed = load().model_dump(), load("layers.0.filters=32").model_dump()
    changed["layers"][0]["conv2d"]["filters"] = 8
    assert plain == changed


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed", "expected key.path=value, as in optimizer.lr=0.05"),
        ("=5", "expected key.path=value, as in optimizer.lr=0.05"),
        ("seed..x=5", "expected key.path=value, as in optimizer.lr=0.05"),
        ("seed=x", "seed: expected a whole number (got 'x')"),
        ("seed=", "seed: expected a whole number (got nothing)"),
        ("seed.x=1", "seed.x: 'seed' has no keys"),
        ("sed=1", "sed: unknown key; did you mean 'seed'?"),
        ("optimiser.lr=1", "optimiser.lr: 'optimiser' is not a key; did you mean 'optimizer'?"),
        (
            "optimizer.rate=1",
            "optimizer.rate: unknown key; the optimizer 'sgd' takes type, lr, momentum, "
            "nesterov, weight_decay, weight_decay_on, clip_norm, groups, ema, lookahead, swa",
        ),
        ("optimizer.lr=yes", "optimizer.lr: expected a number (got 'yes')"),
        (
            "layers.6=relu",
            "layers.6: 'layers' has 6 items, whose index counts from 0; by name they "
            "are conv2d_1, relu_1, conv2d_2, leaky_relu_1, flatten_1, output",
        ),
        (
            "layers.conv2d.filters=3",
            "layers.conv2d.filters: 'layers' has several of type 'conv2d': conv2d_1, conv2d_2",
        ),
        (
            "layers.dense_2.units=3",
            "layers.dense_2.units: 'layers' has no item 'dense_2'; it has "
            "conv2d_1, relu_1, conv2d_2, leaky_relu_1, flatten_1, output",
        ),
        (
            "layers.conv_1.filters=3",
            "layers.conv_1.filters: 'layers' has no item 'conv_1'; did you mean 'conv2d_1'?",
        ),
        (
            "layers.0.strides=2",
            "layer 1 'conv2d_1' (conv2d): strides: unknown key; did you mean 'stride'?",
        ),
        (
            "layers.dense.units=no",
            "layer 6 'output' (dense): units: expected a whole number (got 'no')",
        ),
        (
            "run.device=cud",
            "run.device: expected auto, cpu, numpy or cuda (got 'cud'; did you mean 'cuda'?)",
        ),
        ("run={device: cpu", "run: expected ',' or '}' after the '{' of line 1"),
        ("name=*a", "name: alias '*a': aliases are not supported; repeat it"),
        ("run={dir: a, dir: b}", "run.dir: the key appears twice; keep one"),
    ],
)
def test_message(override: str, expected: str) -> None:
    assert message(override) == f"--set {override}: {expected}"


@pytest.mark.parametrize(
    "override", ["x" * 100_000, "x" * 100_000 + "=1", "layers.0." + "y" * 100_000 + "=1"]
)
def test_a_message_does_not_repeat_a_long_override(override: str) -> None:
    assert len(message(override)) < 2000


def test_both_of_a_pair_set_on_the_command_line_is_an_error() -> None:
    assert message("train.max_steps=5", "train.epochs=1") == (
        "--set train.max_steps=5: train.max_steps: give either epochs or max_steps, not both"
    )


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("train.epochs=", "train: required: epochs or max_steps"),
        ("schedule.step_size=", "schedule: required: step_size or step_size_epochs"),
        (
            "optimizer=",
            "optimizer: expected the name of an optimizer or a mapping with its type (got nothing)",
        ),
        ("run=", "run: expected a mapping (got nothing)"),
        (
            "data.augment.0.scale.min=3",
            "data.augment.0.scale.min: the config has no 'data.augment'; as a whole it is set by "
            "'data.augment=[...]'",
        ),
        (
            "optimizer.groups.0.lr_factor=2",
            "optimizer.groups.0.lr_factor: the config has no 'optimizer.groups'; as a whole it is "
            "set by 'optimizer.groups=[...]'",
        ),
        (
            "optimizer.kind.x=2",
            "optimizer.kind.x: 'kind' is not a key of 'optimizer'; each of 'optimizer.groups' has "
            "its own, the first one 'optimizer.groups.0.kind'",
        ),
    ],
)
def test_the_place_of_a_mistake_is_what_made_it(override: str, expected: str) -> None:
    """Not the file's line, where nothing is wrong."""
    assert message(override) == f"--set {override}: {expected}"
    assert message("train.epochs=").startswith("--set train.epochs=: ")


def test_a_change_of_another_key_is_not_blamed() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(TEXT.replace("epochs: 10", "seed: 1"), "x.yaml", ["train.log_every=5"])
    assert "x.yaml:11:1: train: required: epochs or max_steps" in str(caught.value)


def test_errors_of_file_and_overrides_come_together() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(TEXT.replace("0.9", "x"), "x.yaml", ["seed=x", "name=/", "lr=1"])
    lines = str(caught.value).splitlines()
    assert lines[0] == "x.yaml: 4 errors"
    assert lines[1] == "x.yaml:9:43: optimizer.momentum: expected a number (got 'x')"
    assert lines[2] == "--set seed=x: seed: expected a whole number (got 'x')"
    assert lines[3].startswith("--set name=/: name: expected a name")
    assert lines[4] == "--set lr=1: lr: unknown key; did you mean 'optimizer.lr'?"


@pytest.mark.parametrize("item", ["kind", "1"])
def test_items_without_names_are_given_by_index(item: str) -> None:
    groups = "optimizer.groups=[{kind: bias, lr_factor: 2}]"
    key = f"optimizer.groups.{item}.frozen"
    assert message(groups, f"{key}=true") == (
        f"--set {key}=true: {key}: 'optimizer.groups' has one item without names; the first one is "
        "'optimizer.groups.0'"
    )
