"""Every mistake in a config gives one line: where, which key, what was expected."""

from __future__ import annotations

import pytest
from dnnstack.configs import parse_config
from dnnstack.layers.losses import LOSSES
from dnnstack.optimizers import RULES

from ..support.config_errors import GOOD, message, with_line

ONE_LINE = [
    (
        "optimizer: {type: sgd, rl: 1, lr: 0.1}",
        "x.yaml:1:24: optimizer.rl: unknown key; did you mean 'lr'?",
    ),
    (
        "data: {dataset: {mnist: {labels: fine}}}",
        "x.yaml:1:26: data.dataset.mnist.labels: unknown key; 'mnist' takes no options",
    ),
    (
        "data: {dataset: mnist, batch_size: 1e23}",
        "x.yaml:1:36: data.batch_size: expected a whole number (got 1e23)",
    ),
    (
        "data: {dataset: mnist, batch_size: 99999999999}",
        "x.yaml:1:36: data.batch_size: expected a number of at most 2147483647 (got 99999999999)",
    ),
    (
        "train: {epochs: 1, goal: {accuracy: 99}}",
        "x.yaml:1:37: train.goal.accuracy: expected a number of at most 1 (got 99)",
    ),
    (
        "train: {epochs: 1, goal: {}}",
        "x.yaml:1:20: train.goal: required: accuracy or loss",
    ),
    ("seed: one", "x.yaml:1:7: seed: expected a whole number (got 'one')"),
    ("seed: 1.5", "x.yaml:1:7: seed: expected a whole number (got 1.5)"),
    ("seed: 1e3", "x.yaml:1:7: seed: expected a whole number (got 1e3)"),
    ("seed: true", "x.yaml:1:7: seed: expected a whole number (got true)"),
    ("seed: -1", "x.yaml:1:7: seed: expected a number of at least 0 (got -1)"),
    ("seed:", "x.yaml:1:6: seed: expected a whole number (got nothing)"),
    (
        "name: 5",
        'x.yaml:1:7: name: expected text (got 5; as text: "5")',
    ),
    (
        "name: a/b",
        "x.yaml:1:7: name: expected a name for a folder: letters, digits, '.', '_', '-' "
        "(at most 64), not beginning with '.' or '-', and not 'latest' (got 'a/b')",
    ),
    ("sed: 1", "x.yaml:1:1: sed: unknown key; did you mean 'seed'?"),
    ("lr: 0.1", "x.yaml:1:1: lr: unknown key; did you mean 'optimizer.lr'?"),
    ("epochs: 1", "x.yaml:1:1: epochs: unknown key; did you mean 'train.epochs'?"),
    ("dataset: mnist", "x.yaml:1:1: dataset: unknown key; did you mean 'data.dataset'?"),
    ("gamma: 1", "x.yaml:1:1: gamma: unknown key; did you mean 'schedule.gamma'?"),
    (
        "train: {epochs: 1, batch_size: 5}",
        "x.yaml:1:20: train.batch_size: unknown key; did you mean 'data.batch_size'?",
    ),
    (
        "wibble: 0.1",
        "x.yaml:1:1: wibble: unknown key; expected name, seed, plugins, data, layers, blocks, "
        "init_from, freeze, prune, share, loss, optimizer, schedule, train, evaluate, parallel, "
        "run or checkpoint",
    ),
    ("data: 5", "x.yaml:1:7: data: expected a mapping (got 5)"),
    (
        "run:",
        "x.yaml:1:5: run: expected a mapping (got nothing; indent its keys below it, or remove it)",
    ),
    (
        "data: {batch_size: 64}",
        "x.yaml:1:1: data.dataset: required key is missing "
        "(Name of the data set, or the name with its options.)",
    ),
    (
        "data: {dataset: mnst}",
        "x.yaml:1:17: data.dataset: unknown dataset 'mnst'; did you mean 'mnist'?",
    ),
    (
        "data: {dataset: strokes: {train_cuont: 5}}",
        "x.yaml:1:24: data: expected ',' or '}' after the '{' of line 1",
    ),
    (
        "data: {dataset: {strokes: {train_cuont: 5}}}",
        "x.yaml:1:28: data.dataset.strokes.train_cuont: unknown key; did you mean 'train_count'?",
    ),
    (
        "data: {dataset: mnist, batch_size: 1_000}",
        "x.yaml:1:36: data.batch_size: expected a whole number (got '1_000'; write 1000)",
    ),
    (
        "data: {dataset: mnist, validation: 1.5}",
        "x.yaml:1:36: data.validation: expected a number of samples (0 for none) "
        "or a fraction below 1, such as 0.1 (got 1.5)",
    ),
    (
        "data: {dataset: mnist, normalize: {mean: [0.1, 0.2], std: [1, 2, 3]}}",
        "x.yaml:1:59: data.normalize.std: expected as many numbers as mean has (2) (got [1, 2, 3])",
    ),
    (
        "evaluate: {tta: mirror, tta_share: 0}",
        "x.yaml:1:36: evaluate.tta_share: expected a number above 0 (got 0)",
    ),
    (
        "optimizer: {type: sgd, lr: 1e-50}",
        "x.yaml:1:28: optimizer.lr: expected a number of at least 1.17549e-38 (got 1e-50)",
    ),
    (
        "optimizer: {type: sgd, lr: 1e50}",
        "x.yaml:1:28: optimizer.lr: expected a number of at most 1.70141e+38 (got 1e50)",
    ),
    (
        "optimizer: {type: sgd, lr: 0}",
        "x.yaml:1:28: optimizer.lr: expected a number above 0 (got 0)",
    ),
    (
        "evaluate: {tta_share: 0.5}",
        "x.yaml:1:23: evaluate.tta_share: there are no views without tta; set evaluate.tta, or "
        "remove this key",
    ),
    (
        "loss: crossentropy",
        "x.yaml:1:7: loss: unknown loss 'crossentropy'; did you mean 'cross_entropy'?",
    ),
    (
        "loss: {label_smoothing: 0.1}",
        f"x.yaml:1:1: loss: the key 'type' is missing ({', '.join(LOSSES)})",
    ),
    (
        "loss: {type: mse, label_smoothing: 0.1}",
        "x.yaml:1:19: loss.label_smoothing: unknown key; the loss 'mse' takes type, reduction, "
        "class_weights",
    ),
    (
        "optimizer: {type: sdg, lr: 1}",
        "x.yaml:1:19: optimizer.type: unknown optimizer 'sdg'; did you mean 'sgd'?",
    ),
    (
        "optimizer: {lr: 0.1}",
        f"x.yaml:1:1: optimizer: the key 'type' is missing ({', '.join(RULES)})",
    ),
    (
        "optimizer: sgd",
        "x.yaml:1:1: optimizer.lr: required key is missing (Learning rate, before the schedule.)",
    ),
    (
        "optimizer: {type: sgd, lr: fast}",
        "x.yaml:1:28: optimizer.lr: expected a number (got 'fast')",
    ),
    (
        "optimizer: {type: sgd, lr: '0.1'}",
        "x.yaml:1:28: optimizer.lr: expected a number (got '0.1'; write 0.1)",
    ),
    (
        "optimizer: {type: sgd, lr: 0}",
        "x.yaml:1:28: optimizer.lr: expected a number above 0 (got 0)",
    ),
    (
        "optimizer: {type: sgd, lr: .inf}",
        "x.yaml:1:28: optimizer.lr: expected a finite number (got .inf)",
    ),
    (
        "optimizer: {type: sgd, lr: 1e999}",
        "x.yaml:1:28: optimizer.lr: expected a finite number (got 1e999)",
    ),
    (
        "optimizer: {type: sgd, learning_rate: 1, lr: 1}",
        "x.yaml:1:24: optimizer.learning_rate: unknown key; did you mean 'lr'?",
    ),
    (
        "optimizer: {type: sgd, lr: 1, momentum: 1}",
        "x.yaml:1:41: optimizer.momentum: expected a number below 1 (got 1)",
    ),
    (
        "optimizer: {type: sgd, lr: 1, nesterov: true}",
        "x.yaml:1:41: optimizer.nesterov: nesterov needs a momentum above 0, such as 0.9",
    ),
    (
        "optimizer: {type: sgd, lr: 1, weight_decay_on: weight}",
        "x.yaml:1:48: optimizer.weight_decay_on: expected all or weights "
        "(got 'weight'; did you mean 'weights'?)",
    ),
    ("schedule: stp", "x.yaml:1:11: schedule: unknown schedule 'stp'; did you mean 'step'?"),
    (
        "schedule: {type: cosin}",
        "x.yaml:1:18: schedule.type: unknown schedule 'cosin'; did you mean 'cosine'?",
    ),
    (
        "schedule: {type: fixed, gamma: 1}",
        "x.yaml:1:25: schedule.gamma: unknown key; the schedule 'fixed' takes type, warmup",
    ),
    (
        "schedule: {type: step, step: 3}",
        "x.yaml:1:24: schedule.step: unknown key; did you mean 'step_size'?",
    ),
    (
        "schedule: {type: step, step_size: 3, step_size_epochs: 1}",
        "x.yaml:1:56: schedule.step_size_epochs: "
        "give either step_size or step_size_epochs, not both",
    ),
    (
        "schedule: {type: multistep, milestones: [5, 3]}",
        "x.yaml:1:41: schedule.milestones: expected milestones in rising order (got [5, 3])",
    ),
    (
        "schedule: {type: fixed, warmup: {start_factor: 0.5}}",
        "x.yaml:1:25: schedule.warmup: required: steps or epochs",
    ),
    (
        "schedule: {type: poly, max_steps: 5, max_epochs: 5}",
        "x.yaml:1:50: schedule.max_epochs: give either max_steps or max_epochs, not both",
    ),
    (
        "optimizer: {type: adam, lr: 1, betas: [0.9]}",
        "x.yaml:1:39: optimizer.betas: expected two numbers, such as [0.9, 0.999] (got [0.9])",
    ),
    (
        "optimizer: {type: adam, lr: 1, betas: [0.9, 0.9, 0.9]}",
        "x.yaml:1:39: optimizer.betas: expected two numbers, such as [0.9, 0.999] "
        "(got [0.9, 0.9, 0.9])",
    ),
    ("loss: {type: hinge, power: 3}", "x.yaml:1:28: loss.power: expected 1 or 2 (got 3)"),
    ("run: {tune: yes}", "x.yaml:1:13: run.tune: expected auto, true or false (got 'yes')"),
    ("run: {tune: 1}", "x.yaml:1:13: run.tune: expected auto, true or false (got 1)"),
    (
        "checkpoint: {every_epochs: null}",
        "x.yaml:1:28: checkpoint.every_epochs: expected a number of epochs, or every_steps as well"
        ", because a run must be saved (got nothing)",
    ),
    ("train: {}", "x.yaml:1:1: train: required: epochs or max_steps"),
    # What is misspelt is not missing, too.
    ("train: {epoch: 3}", "x.yaml:1:9: train.epoch: unknown key; did you mean 'epochs'?"),
    (
        "train: {epochs: 1, max_steps: 2}",
        "x.yaml:1:31: train.max_steps: give either epochs or max_steps, not both",
    ),
    (
        "run: {device: gpu}",
        "x.yaml:1:15: run.device: expected auto, cpu, numpy or cuda "
        "(got 'gpu'; did you mean 'cuda'?)",
    ),
    (
        'run: {dir: "a\\0b"}',
        "x.yaml:1:12: run.dir: expected a path without control characters (got 'a\\x00b')",
    ),
    (
        "checkpoint: {every_epochs: 1, every_steps: 5}",
        "x.yaml:1:28: checkpoint.every_epochs: give either every_epochs or every_steps, not both",
    ),
]


@pytest.mark.parametrize(("line", "expected"), ONE_LINE, ids=[line for line, _ in ONE_LINE])
def test_message(line: str, expected: str) -> None:
    assert message(with_line(line)) == expected


def test_the_good_config_is_good() -> None:
    parse_config("\n".join(GOOD.values()), "x.yaml")


def test_all_errors_at_once_in_the_order_of_the_file() -> None:
    text = """\
name: all
sed: 5
data:
  dataset: mnst
  batch_size: 0
layers:
  - conv2d:
      filters: many
      kernel_size: 5
      strides: 2
  - flaten
  - dense: {}
loss: {type: cross_entropy, label_smoothing: 2}
optimizer: {type: sgd, lr: fast, momentum: 0.9, nesterov: no}
train:
  log_every: 5
"""
    assert message(text) == (
        "x.yaml: 11 errors\n"
        "x.yaml:2:1: sed: unknown key; did you mean 'seed'?\n"
        "x.yaml:4:12: data.dataset: unknown dataset 'mnst'; did you mean 'mnist'?\n"
        "x.yaml:5:15: data.batch_size: expected a number of at least 1 (got 0)\n"
        "x.yaml:8:16: layer 1 'conv2d_1' (conv2d): filters: expected a whole number (got 'many')\n"
        "x.yaml:10:7: layer 1 'conv2d_1' (conv2d): strides: unknown key; did you mean 'stride'?\n"
        "x.yaml:11:5: layer 2: unknown layer 'flaten'; did you mean 'flatten'?\n"
        "x.yaml:12:5: layer 3 'dense_1' (dense): "
        "units: required key is missing (Number of outputs.)\n"
        "x.yaml:13:46: loss.label_smoothing: expected a number below 1 (got 2)\n"
        "x.yaml:14:28: optimizer.lr: expected a number (got 'fast')\n"
        "x.yaml:14:59: optimizer.nesterov: expected true or false (got 'no'; write false)\n"
        "x.yaml:15:1: train: required: epochs or max_steps"
    )


def test_a_misspelt_type_hides_no_other_mistake() -> None:
    """They are those of the type that was meant, or those that every type would have."""
    line = "optimizer: {type: sdg, lr: fast, momentun: 0.9}"
    assert message(with_line(line)).splitlines()[1:] == [
        "x.yaml:1:19: optimizer.type: unknown optimizer 'sdg'; did you mean 'sgd'?",
        "x.yaml:1:28: optimizer.lr: expected a number (got 'fast')",
        "x.yaml:1:34: optimizer.momentun: unknown key; did you mean 'momentum'?",
    ]
    assert message(with_line(line.replace("sdg", "foo"))).splitlines()[1:] == [
        "x.yaml:1:19: optimizer.type: unknown optimizer 'foo'; "
        "expected adagrad, adam, adamw, muon or sgd",
        "x.yaml:1:28: optimizer.lr: expected a number (got 'fast')",
    ]
    assert "adagrad, adam, adamw, muon or sgd (got nothing)" in message(
        with_line("optimizer: {type: , lr: 0.1}")
    )


def test_missing_sections_are_all_named() -> None:
    assert message("seed: 1").splitlines()[1:] == [
        "x.yaml:1:1: data: required key is missing (What to train on.)",
        "x.yaml:1:1: layers: required key is missing (The network, from the input to the output.)",
        "x.yaml:1:1: optimizer: required key is missing (How the parameters are updated.)",
        "x.yaml:1:1: train: required key is missing (How long to train.)",
    ]


def test_a_long_word_is_cut() -> None:
    text = message(with_line(f"layers: [{'x' * 70_000}]"))
    assert text.startswith(f"x.yaml:1:10: layer 1: unknown layer '{'x' * 60}...'; expected relu")


def test_long_words_of_many_errors_are_cut() -> None:
    """Otherwise a file of a megabyte would have a message of fifty."""
    layers = ", ".join(f"{{conv2d: {{{'x' * 900}{n}: 1}}}}" for n in range(60))
    text = message(with_line(f"layers: [{layers}]"))
    assert text.startswith("x.yaml: ")
    assert text.splitlines()[-1].startswith("... and ")
    assert len(text) < 12_000


def test_very_many_errors_are_cut() -> None:
    lines = message(with_line(f"layers: [{', '.join(['dens'] * 200)}]")).splitlines()
    assert lines[0] == "x.yaml: 200 errors"
    assert lines[-1] == "... and 150 more"
    assert len(lines) == 52
