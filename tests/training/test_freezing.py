"""Parameters that are frozen, for a while or for good."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.backends.base import Backend
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig
from dnnstack.graph import ops
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.trainer import train

from ..support.resuming import Ear
from ..support.stored import cases
from ..support.trainings import NOWHERE, go, session_of

Make = Callable[..., RunConfig]


def test_a_frozen_parameter_stands_still_to_the_last_bit(tiny, backend):
    """Ten steps are an epoch: the bias trains in the first, the dense layer from the second on."""
    config = tiny(
        "optimizer={type: adam, lr: 0.01, groups: [{parameters: conv2d_1.weight, frozen: true}, "
        "{parameters: conv2d_1.bias, freeze_after_epoch: 1},"
        "{parameters: dense_1.*, freeze_until_epoch: 1}]}"
    )
    session = session_of(config, backend)
    assert [phase.first for phase in session.stretches] == [0, 10]
    start = session.arrays()
    session.run(10)
    middle = session.arrays()
    session.run(10)
    end = session.arrays()
    session.close()

    def moved(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> set[str]:
        names = ("conv2d_1.weight", "conv2d_1.bias", "dense_1.weight", "dense_1.bias")
        return {name for name in names if (one[name] != other[name]).any()}

    assert moved(start, middle) == {"conv2d_1.bias"}
    assert moved(middle, end) == {"dense_1.weight", "dense_1.bias"}
    np.testing.assert_array_equal(end["adam_v/conv2d_1.bias"], middle["adam_v/conv2d_1.bias"])


def test_gradients_of_frozen_parameters_are_not_computed(tiny, reference):
    config = tiny(
        "optimizer={type: sgd, lr: 0.01, groups: [{parameters: conv2d_1.weight, frozen: true}, "
        "{parameters: conv2d_1.bias, freeze_after_epoch: 1}]}"
    )
    session = session_of(config, reference)
    first, second = (phase.train for phase in session.stretches)
    session.close()

    def kinds(graph: object) -> list[type]:
        return [type(op) for op in graph.ops]  # type: ignore[attr-defined]

    assert ops.Conv2dBackwardFilter not in kinds(first)
    assert kinds(first).count(ops.BiasGrad) == 2
    assert kinds(second).count(ops.BiasGrad) == 1
    # Of the three matrix products the one for the gradient of dense's input is gone too.
    assert (kinds(first).count(ops.MatMul), kinds(second).count(ops.MatMul)) == (3, 2)


def test_both_backends_agree_on_groups(tiny, reference, onednn):
    config = tiny(
        "optimizer={type: sgd, lr: 0.02, momentum: 0.9, nesterov: true, weight_decay: 0.01, "
        "clip_norm: 1, lookahead: {every: 3}, ema: {decay: 0.9}, groups: ["
        "{parameters: conv2d_1.bias, freeze_until_epoch: 0.5, freeze_after_epoch: 1.5},"
        "{kind: bias, lr: 0.1, weight_decay: 0, schedule: {type: poly}}]}",
        "train.accumulate=2",
    )
    one, other = go(config, reference).arrays, go(config, onednn).arrays
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=0.01, atol=1e-4, err_msg=name)


def test_muon_on_filters_in_groups(tiny, reference, onednn):
    """Without a ReLU: where its input is as small as a rounding, the slope is either 0 or 1."""
    config = tiny(
        "layers=[{conv2d: {filters: 4, kernel_size: 5, stride: 2}}, tanh, "
        "{conv2d: {filters: 6, kernel_size: 3, groups: 2}}, tanh, flatten, {dense: {units: 10}}]",
        "optimizer={type: muon, lr: 0.02, rescale: true, rest: {type: sgd, lr: 0.05}}",
    )
    one, other = go(config, reference).arrays, go(config, onednn).arrays
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=1e-5, atol=1e-5, err_msg=name)


ALL_FROZEN = (
    "optimizer={type: muon, lr: 0.1, clip_norm: 1, ema: {decay: 0.5}, lookahead: {every: 2}, "
    "rest: {type: adamw, lr: 0.1}, groups: [{parameters: '*', frozen: true}]}",
    "train.max_steps=5",
)
BATCH_NORM = (
    "layers=[{conv2d: {filters: 4, kernel_size: 5}}, batch_norm, flatten, {dense: {units: 10}}]"
)


@pytest.mark.parametrize("parts", [1, 2])
def test_statistics_alone_are_learned(tiny, backend, parts):
    """With everything frozen only the running statistics move, and their averages after them."""
    config = tiny(BATCH_NORM, *ALL_FROZEN, f"train.accumulate={parts}")
    session = session_of(config, backend)
    start = session.arrays()
    session.run(5)
    end = session.arrays()
    session.close()
    moved = {name for name in end if (start[name] != end[name]).any()}
    statistics = {f"batch_norm_1.running_{of}" for of in ("mean", "var")}
    assert moved == {f"{kind}{of}" for kind in ("", "ema/", "lookahead/") for of in statistics}


def test_a_training_that_trains_nothing_says_so(tiny, reference):
    ear = Ear()
    train(tiny(*ALL_FROZEN), reference, NOWHERE, listener=ear)
    assert ear.notices == ["all parameters are frozen (optimizer.groups), so none is trained"]


def test_a_stretch_of_no_step_is_an_error(tiny, reference):
    """Ten steps are an epoch: 1 and 1.01 both stand for step 10."""
    config = tiny(
        "optimizer={type: sgd, lr: 0.1, groups: [{kind: kernel}, "
        "{kind: bias, freeze_until_epoch: 1, freeze_after_epoch: 1.01}]}"
    )
    with pytest.raises(
        ConfigError,
        match=r"optimizer\.groups\.1\.freeze_after_epoch: epochs 1 and 1\.01 are both step 10.*10 "
        r"steps per epoch",
    ):
        train(config, reference, NOWHERE)


FREEZE = (
    "layers=[{conv2d: {filters: 4, kernel_size: 5, stride: 2}}, {batch_norm: {name: bn}}, relu, "
    "{sequential: {name: tail, layers: [{conv2d: {filters: 4, kernel_size: 3}}, "
    "{batch_norm: {name: bn}}, relu, global_avg_pool2d]}}, {dense: {units: 10}}]"
)
AVERAGED = (
    "optimizer={type: sgd, lr: 0.05, momentum: 0.9, ema: {decay: 0.5}, lookahead: {every: 2}}"
)


def moved_in(config: RunConfig, backend: Backend, steps: int = 5) -> set[str]:
    session = session_of(config, backend)
    start = session.arrays()
    session.run(steps)
    end = session.arrays()
    session.close()
    return {name for name in end if (start[name] != end[name]).any()}


@pytest.mark.parametrize("parts", [1, 2])
def test_nothing_of_a_frozen_layer_moves(tiny, backend, parts):
    """Neither statistics nor averages; what is in front of it and behind it trains."""
    base = (FREEZE, AVERAGED, f"train.accumulate={parts}")
    found = moved_in(tiny(*base, "freeze=[tail]"), backend)
    assert not any("tail" in name for name in found)
    trained = {"conv2d_1.weight", "bn.weight", "bn.running_mean", "dense_1.weight"}
    assert trained | {f"ema/{name}" for name in trained} <= found
    found = moved_in(tiny(*base, "freeze=['*bn']"), backend)
    assert not any("bn." in name for name in found)
    assert {"conv2d_1.weight", "tail.conv2d_2.weight", "dense_1.weight"} <= found


def test_frozen_layers_have_no_optimizer_state(tiny, reference):
    session = session_of(tiny(FREEZE, AVERAGED, "freeze=tail"), reference)
    names = set(session.shapes())
    session.close()
    assert {"tail.bn.running_var", "tail.conv2d_2.weight", "momentum/bn.weight"} <= names
    assert not any("/tail" in name for name in names)


def test_frozen_statistics_are_used_in_training(tiny, reference):
    """The loss of a batch is that of an evaluation, however few samples the batch has."""
    frozen = tiny(FREEZE, "freeze=['*']", "data.batch_size=1")
    session = session_of(frozen, reference)
    graph = session.graph("train")
    assert not [op for op in graph.ops if isinstance(op, (ops.BatchNorm, ops.BatchNormBackward))]
    assert sum(isinstance(op, ops.BatchNormInference) for op in graph.ops) == 2
    session.run(1)
    session.close()


def test_what_only_a_frozen_beginning_needs_is_not_computed(tiny, reference):
    session = session_of(tiny(FREEZE, "freeze=[conv2d_1, bn, tail]"), reference)
    kinds = [type(op) for op in session.graph("train").ops]
    session.close()
    assert ops.BatchNormInferenceBackward not in kinds
    assert ops.Conv2dBackwardFilter not in kinds
    session = session_of(tiny(FREEZE, "freeze=[bn, tail]"), reference)
    kinds = [type(op) for op in session.graph("train").ops]
    session.close()
    assert kinds.count(ops.BatchNormInferenceBackward) == 2
    assert kinds.count(ops.Conv2dBackwardFilter) == 1


def test_both_backends_agree_on_frozen_layers(tiny, reference, onednn):
    config = tiny(FREEZE, AVERAGED, "freeze=[tail.bn, dense_1]")
    one, other = go(config, reference).arrays, go(config, onednn).arrays
    assert set(one) == set(other)
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=0.01, atol=1e-4, err_msg=name)


@pytest.mark.parametrize(
    ("freeze", "message"), cases(__file__, "a_pattern_without_layers_is_a_mistake")
)
def test_a_pattern_without_layers_is_a_mistake(tiny, freeze, message):
    config = tiny(FREEZE, f"freeze={freeze}")
    with pytest.raises(ConfigError, match=message):
        build_network(config, describe_data(config))


def test_a_group_of_frozen_layers_alone_is_a_mistake(tiny, reference):
    optimizer = "optimizer={type: sgd, lr: 1, groups: [{parameters: tail.*, lr_factor: 2}]}"
    with pytest.raises(ConfigError, match=r"groups\.0: all of its parameters are frozen by 'fre"):
        session_of(tiny(FREEZE, optimizer, "freeze=tail"), reference)


def test_all_frozen_is_said(tiny, reference):
    ear = Ear()
    train(tiny(FREEZE, "freeze=['*']", "train.max_steps=2"), reference, NOWHERE, listener=ear)
    assert ear.notices == ["all parameters are frozen (freeze), so none is trained"]
