"""Parameters that are frozen, for a while or for good."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig
from dnnstack.graph import ops
from dnnstack.training.assemble import build_network, describe_data
from dnnstack.training.trainer import train

from ..support.resuming import Ear
from ..support.stored import cases
from ..support.trainings import NOWHERE, session_of

Make = Callable[..., RunConfig]


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


ALL_FROZEN = (
    "optimizer={type: muon, lr: 0.1, clip_norm: 1, ema: {decay: 0.5}, lookahead: {every: 2}, "
    "rest: {type: adamw, lr: 0.1}, groups: [{parameters: '*', frozen: true}]}",
    "train.max_steps=5",
)
BATCH_NORM = (
    "layers=[{conv2d: {filters: 4, kernel_size: 5}}, batch_norm, flatten, {dense: {units: 10}}]"
)


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


def test_frozen_layers_have_no_optimizer_state(tiny, reference):
    session = session_of(tiny(FREEZE, AVERAGED, "freeze=tail"), reference)
    names = set(session.shapes())
    session.close()
    assert {"tail.bn.running_var", "tail.conv2d_2.weight", "momentum/bn.weight"} <= names
    assert not any("/tail" in name for name in names)


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
