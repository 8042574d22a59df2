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
from dnnstack.training.trainer import train

from ..support.resuming import Ear
from ..support.trainings import NOWHERE, end_of, go, session_of

Make = Callable[..., RunConfig]


def spoiled(result: tuple[Any, ...], value: float) -> tuple[Any, ...]:
    """A kernel's results with one bad value in the first."""
    first = np.array(result[0])
    first.reshape(-1)[0] = value
    return (first, *result[1:])


# ---------------------------------------------------------------- parts of a batch


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


# ---------------------------------------------------------------- rollback


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


# ---------------------------------------------------------------- running statistics
