"""Classes of unequal size: weights in the loss, and batches in which every class is as frequent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config
from dnnstack.datasets import ImageSet, balanced_order
from dnnstack.training.setup import class_weights

Tiny = Callable[..., RunConfig]
NAMES = ("few", "no: many # of [these]", "猫")
LABELS = np.array([0] * 10 + [1] * 60 + [2] * 30, np.int32)
DATA = ImageSet("set/train", np.zeros((100, 1, 2, 2), np.uint8), LABELS, NAMES)
EVERY = np.arange(100, dtype=np.int32)


def weights(config: RunConfig) -> tuple[float, ...]:
    return class_weights(config, DATA, EVERY)


def test_balanced_weights_make_classes_equal(tiny):
    found = weights(tiny("loss={type: cross_entropy, class_weights: balanced}"))
    np.testing.assert_allclose(found, [100 / 30, 100 / 180, 100 / 90])
    # The mean weight of a sample is 1.
    np.testing.assert_allclose(np.array(found)[LABELS].mean(), 1.0)
    # Only the samples to train on count.
    part = class_weights(tiny("loss.class_weights=balanced"), DATA, EVERY[5:])
    np.testing.assert_allclose(part, [95 / 15, 95 / 180, 95 / 90])
    # Nor does a class without a sample to train on.
    part = class_weights(tiny("loss.class_weights=balanced"), DATA, EVERY[10:])
    np.testing.assert_allclose(part[1:], [90 / 120, 90 / 60])
    np.testing.assert_allclose(np.array(part)[LABELS[10:]].mean(), 1.0)
    assert weights(tiny()) == ()


def test_weights_by_place_and_by_name(tiny):
    assert weights(tiny("loss.class_weights=[1, 2.5, 0]")) == (1.0, 2.5, 0.0)
    config = tiny('loss.class_weights={"no: many # of [these]": 3, 猫: 0.5}')
    assert weights(config) == (1.0, 3.0, 0.5)
    # What a run keeps of them can be read again.
    assert parse_config(effective_yaml(config), "run").loss == config.loss


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("loss.class_weights=[1, 2]", r"has 2 numbers, but the data has 3 classes"),
        ("loss.class_weights={dog: 2}", r"the data has no class 'dog'; its classes are few, no:"),
        ("loss.class_weights=balanced", r"would count rare classes twice"),
    ],
)
def test_weights_that_do_not_fit(tiny, override, message):
    with pytest.raises(ConfigError, match=r"^loss\.class_weights: .*" + message):
        weights(tiny(override, "data.balance=true"))


@pytest.mark.parametrize(
    "value", ["even", "3", "[]", "{}", "[1, -1]", "[0, 0]", "{a: x}", "[1e7]", "true"]
)
def test_what_is_no_weight(tiny, value):
    with pytest.raises(ConfigError, match=r"loss\.class_weights: expected "):
        tiny(f"loss.class_weights={value}")


def test_a_balance_that_is_off_is_none(tiny):
    assert effective_yaml(tiny("data.balance=false")) == effective_yaml(tiny())


def test_a_class_that_is_not_trained_on_is_left_out():
    order = balanced_order(EVERY[10:], LABELS, 3, 0, 9)
    assert np.bincount(LABELS[order]).tolist() == [0, 45, 45]
