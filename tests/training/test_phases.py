"""Trainings whose step changes: batches in parts, averages, rollbacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.backends.reference.kernels import KERNELS, Kernel
from dnnstack.common.errors import ConfigError, NonFiniteError
from dnnstack.configs import RunConfig
from dnnstack.graph.ops import Conv2dBackwardFilter, MatMul
from dnnstack.training.assemble import groups_of, rule_of
from dnnstack.training.inference.evaluate import evaluate, load_part
from dnnstack.training.inference.trained import Trained
from dnnstack.training.listener import Listener
from dnnstack.training.trainer import train

from ..support.trainings import NOWHERE, end_of, go, session_of

Make = Callable[..., RunConfig]


def spoiled(result: tuple[Any, ...], value: float) -> tuple[Any, ...]:
    """A kernel's results with one bad value in the first."""
    first = np.array(result[0])
    first.reshape(-1)[0] = value
    return (first, *result[1:])


# ---------------------------------------------------------------- parts of a batch


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("parts", [2, 4, 16])
def test_parts_of_a_batch_are_as_good_as_the_whole(
    tiny: Make, backend: Backend, parts: int, reduction: str
) -> None:
    lr = 0.05 if reduction == "mean" else 0.05 / 16
    common = (
        f"optimizer={{type: sgd, lr: {lr}, momentum: 0.9, weight_decay: 0.01}}",
        f"loss={{type: cross_entropy, reduction: {reduction}, label_smoothing: 0.1}}",
    )
    whole = go(tiny(*common), backend)
    split = go(tiny(*common, f"train.accumulate={parts}"), backend)
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(array, split.arrays[name], rtol=2e-3, atol=2e-5, err_msg=name)
    np.testing.assert_allclose(whole.state.sums, split.state.sums, rtol=1e-3)


def test_parts_are_augmented_as_the_whole(tiny: Make, backend: Backend) -> None:
    """Crops are keyed by epoch and sample, so a part sees the same pictures."""
    crop = "data.augment=[{random_crop: {padding: 4}}, random_flip]"
    whole, split = (go(tiny(crop, *more), backend) for more in ((), ("train.accumulate=4",)))
    other = go(tiny(), backend)
    for name, array in whole.arrays.items():
        np.testing.assert_allclose(array, split.arrays[name], rtol=2e-3, atol=2e-5, err_msg=name)
        assert not np.allclose(array, other.arrays[name], rtol=2e-3, atol=2e-5)


def test_the_sum_of_the_losses_is_the_mean_with_another_rate(tiny: Make, backend: Backend) -> None:
    mean = go(tiny("optimizer.lr=0.16"), backend)
    total = go(tiny("optimizer.lr=0.01", "loss={type: cross_entropy, reduction: sum}"), backend)
    for name, array in mean.arrays.items():
        np.testing.assert_allclose(array, total.arrays[name], rtol=2e-3, atol=2e-5, err_msg=name)
    # What is reported is the mean either way.
    np.testing.assert_allclose(mean.state.sums, total.state.sums, rtol=1e-3)


def test_a_batch_that_cannot_be_cut_is_an_error(tiny: Make, reference: Backend) -> None:
    with pytest.raises(ConfigError, match=r"train\.accumulate: a batch of 16 .* in 3 parts"):
        train(tiny("train.accumulate=3"), reference, NOWHERE)


def test_a_bad_value_in_a_later_part_is_named(
    tiny: Make, reference: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third part of step 4 gives an infinite gradient; the last two overwrite its tensors."""
    kernel = KERNELS[Conv2dBackwardFilter]

    def bad(op: Conv2dBackwardFilter, *arguments: np.ndarray) -> Any:
        result = kernel.compute(op, *arguments)
        # Known by its pictures: the same part again is bad again.
        return spoiled(result, np.inf) if float(arguments[0].sum()) == marked[0] else result

    marked = [np.nan]
    sums: list[float] = []
    monkeypatch.setitem(
        KERNELS,
        Conv2dBackwardFilter,
        Kernel(lambda op, *a: (sums.append(float(a[0].sum())), kernel.compute(op, *a))[1], "x"),
    )
    config = tiny("train.accumulate=4", "optimizer={type: adam, lr: 0.01}")
    go(config, reference)
    marked[0] = sums[3 * 4 + 2]
    monkeypatch.setitem(KERNELS, Conv2dBackwardFilter, Kernel(bad, kernel.function))
    with pytest.raises(NonFiniteError) as caught:
        train(config, reference, NOWHERE)
    text = str(caught.value)
    assert text.startswith("step 4: Conv2dBackwardFilter of layer 'conv2d_1' (backward) gave the")
    assert "1 inf of 100 in 'conv2d_1.weight.grad'" in text


# ---------------------------------------------------------------- averages


def test_evaluation_takes_the_averages(tiny: Make, backend: Backend) -> None:
    """With a decay near 1 they are nearly the start's values: validation hardly improves."""
    rule = "optimizer={{type: sgd, lr: 0.1, momentum: 0.9, ema: {{decay: {}}}}}"
    checks = ("train.validate_every_epochs=1", "train.max_steps=40")
    slow = train(tiny(rule.format(0.9999), *checks), backend, NOWHERE)
    quick = train(tiny(rule.format(0.0), *checks), backend, NOWHERE)
    none = train(tiny("optimizer={type: sgd, lr: 0.1, momentum: 0.9}", *checks), backend, NOWHERE)
    assert slow.validation is not None
    assert quick.validation is not None
    assert none.validation is not None
    assert slow.validation.loss > quick.validation.loss + 0.3
    np.testing.assert_allclose(quick.validation.loss, none.validation.loss, rtol=1e-5)
    assert slow.training == quick.training


def test_a_checkpoint_is_evaluated_with_its_averages(tiny: Make, backend: Backend) -> None:
    config = tiny(
        "optimizer={type: sgd, lr: 0.1, momentum: 0.9, ema: {decay: 0.97}}",
        "train.validate_every_epochs=1",
    )
    summary = train(config, backend, NOWHERE)
    trained = Trained.of(end_of(summary))
    images, index = load_part(trained, "validation", NOWHERE)
    found = evaluate(trained, backend, images, index, "validation")
    assert summary.validation is not None
    np.testing.assert_allclose(found.loss, summary.validation.loss, rtol=1e-5)
    assert found.correct == summary.validation.correct
    assert any(
        (trained.checkpoint.arrays[name] != trained.checkpoint.arrays[f"ema/{name}"]).any()
        for name in ("dense_1.weight", "conv2d_1.weight")
    )


def test_a_bad_validation_with_averages_is_named(
    tiny: Make, reference: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = KERNELS[MatMul]

    def bad(op: MatMul, *arguments: np.ndarray) -> Any:
        result = kernel.compute(op, *arguments)
        return spoiled(result, np.nan) if op.b.name == "ema/dense_1.weight" else result

    monkeypatch.setitem(KERNELS, MatMul, Kernel(bad, kernel.function))
    config = tiny("optimizer={type: sgd, lr: 0.1, ema: {decay: 0.9}}")
    with pytest.raises(NonFiniteError, match=r"step 10, batch 1 .* of layer 'dense_1'"):
        train(config, reference, NOWHERE)


def test_lookahead_ends_with_the_slow_weights(tiny: Make, backend: Backend) -> None:
    found = go(tiny("optimizer={type: sgd, lr: 0.1, lookahead: {every: 4}}"), backend).arrays
    slow = [name for name in found if name.startswith("lookahead/")]
    assert len(slow) == 4
    for name in slow:
        np.testing.assert_array_equal(found[name], found[name.removeprefix("lookahead/")])


# ---------------------------------------------------------------- rollback


class Ear(Listener):
    def __init__(self) -> None:
        self.notices: list[str] = []

    def notice(self, text: str) -> None:
        self.notices.append(text)


RULES = {
    "adam": "{type: adam, lr: 0.01, ema: {decay: 0.9}}",
    "muon": "{type: muon, lr: 0.1, rest: {type: sgd, lr: 0.01}, lookahead: {every: 3}, "
    "groups: [{kind: bias, schedule: {type: poly}}]}",
}


@pytest.mark.parametrize("rule", list(RULES))
def test_rollback_restores_all_state(
    tiny: Make, reference: Backend, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    """A gradient is bad once; what follows is what a run with half the rate from there on gives."""
    kernel = KERNELS[Conv2dBackwardFilter]
    calls = [0]

    def bad(op: Conv2dBackwardFilter, *arguments: np.ndarray) -> Any:
        calls[0] += 1
        result = kernel.compute(op, *arguments)
        return spoiled(result, np.nan) if calls[0] == 9 else result

    monkeypatch.setitem(KERNELS, Conv2dBackwardFilter, Kernel(bad, kernel.function))
    shared = (
        f"optimizer={RULES[rule]}",
        "checkpoint={every_steps: 6, keep: 9, best: false}",
    )
    ear = Ear()
    summary = train(
        tiny(*shared, "train.on_nan=rollback", "train.log_every=9"),
        reference,
        NOWHERE,
        listener=ear,
    )
    assert any("going back to step 6" in text for text in ear.notices)
    found = end_of(summary)
    assert found.state.rate_factor == 0.5
    session = session_of(tiny(*shared), reference)
    session.run(6)
    graph = session.graph("train")
    for name in ("rates", *(name for name in session.plan.tables if name.startswith("rates"))):
        table = session.plan.tables.get(name, session.plan.rates)
        session.executable.write(graph[name], table * np.float32(0.5))
    for steps in (4, 10, 5):
        session.run(steps)
    for name, array in session.arrays().items():
        np.testing.assert_array_equal(array, found.arrays[name], err_msg=name)
    session.close()


# ---------------------------------------------------------------- configs


@pytest.mark.parametrize(
    ("text", "name", "groups"),
    [
        ("{type: adamw, lr: 0.1, betas: [0.7, 0.9]}", "adamw", 0),
        ("{type: muon, lr: 0.1, rest: {type: sgd, lr: 0.2}, groups: [{kind: bias}]}", "muon", 1),
    ],
)
def test_optimizers_of_configs(tiny: Make, text: str, name: str, groups: int) -> None:
    config = tiny(f"optimizer={text}")
    assert (rule_of(config).kind, len(groups_of(config))) == (name, groups)


# ---------------------------------------------------------------- running statistics

BATCH_NORM = (
    "layers=[{conv2d: {filters: 4, kernel_size: 5, stride: 2, use_bias: false}}, "
    "{batch_norm: {scale: false}}, relu, max_pool2d, flatten, {dense: {units: 10}}]"
)


def test_running_statistics_are_averaged_too(tiny: Make, backend: Backend) -> None:
    """With a decay of 0 the averages are the values themselves, so the validation is the same."""
    rule = "optimizer={{type: sgd, lr: 0.05, momentum: 0.9{}}}"
    # A search for the fastest calls may end otherwise for each of them, and round otherwise.
    checks = (BATCH_NORM, "train.validate_every_epochs=1", "run.tune=false")
    plain = train(tiny(rule.format(""), *checks), backend, NOWHERE)
    same = train(tiny(rule.format(", ema: {decay: 0}"), *checks), backend, NOWHERE)
    assert plain.validation is not None
    assert same.validation is not None
    np.testing.assert_allclose(plain.validation.loss, same.validation.loss, rtol=1e-5)
    slow = train(tiny(rule.format(", ema: {decay: 0.9}"), *checks), backend, NOWHERE)
    found = end_of(slow).arrays
    for name in ("running_mean", "running_var"):
        average, value = found[f"ema/batch_norm_1.{name}"], found[f"batch_norm_1.{name}"]
        assert (average != value).all()
    trained = Trained.of(end_of(slow))
    images, index = load_part(trained, "validation", NOWHERE)
    again = evaluate(trained, backend, images, index, "validation")
    assert slow.validation is not None
    np.testing.assert_allclose(again.loss, slow.validation.loss, rtol=1e-5)


def test_lookahead_moves_running_statistics(tiny: Make, backend: Backend) -> None:
    rule = "optimizer={type: sgd, lr: 0.05, lookahead: {every: 5, decay: 0.99, power: 0}}"
    session = session_of(tiny(BATCH_NORM, rule), backend)
    session.run(4)
    before = session.arrays()
    session.run(1)
    after = session.arrays()
    session.close()
    name = "batch_norm_1.running_var"
    assert (before[f"lookahead/{name}"] == 1).all()
    assert (after[name] == after[f"lookahead/{name}"]).all()
    assert (before[name] != after[name]).all()


@pytest.mark.parametrize("parts", [1, 4])
def test_statistics_are_resumed_with_everything(tiny: Make, backend: Backend, parts: int) -> None:
    config = tiny(
        BATCH_NORM,
        f"train.accumulate={parts}",
        "optimizer={type: sgd, lr: 0.05, momentum: 0.85, nesterov: true, ema: {decay: 0.9}, "
        "lookahead: {}, groups: [{kind: shift, lr_factor: 64, weight_decay: 0.01},"
        "{parameters: conv2d_1.weight, freeze_after_epoch: 1.5}]}",
    )
    whole = session_of(config, backend)
    for steps in (10, 10, 5):
        whole.run(steps)
    half = session_of(config, backend)
    half.run(10)
    half.run(3)
    kept = half.snapshot()
    half.close()
    again = session_of(config, backend)
    again.put(kept)
    again.run(7)
    again.run(5)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(array, again.arrays()[name], err_msg=name)
    whole.close()
    again.close()
