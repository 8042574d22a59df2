"""Classes of unequal size: weights in the loss, and batches in which every class is as frequent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from dnnstack.common.errors import ConfigError
from dnnstack.configs import RunConfig, effective_yaml, parse_config
from dnnstack.datasets import ImageSet, balanced_order
from dnnstack.training.class_weights import class_weights
from dnnstack.training.session import Session

from ..support.augmented import with_session

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


def test_a_weight_multiplies_the_loss_of_its_samples(tiny, backend):
    """In training; the mean is over the samples, and an evaluation has no weights."""

    def losses(*overrides: str) -> tuple[float, float]:
        found = []

        def use(session: Session) -> None:
            session.run(1)
            sums = session.sums()
            validation = session.validate()
            assert validation is not None
            found.append((float(sums[0] / sums[2]), validation.loss))

        with_session(tiny("optimizer.lr=1e-30", *overrides), backend, use)
        return found[0]

    plain, measured = losses()
    each = [
        losses(f"loss.class_weights={[float(label == one) for label in range(10)]}")[0]
        for one in range(10)
    ]
    np.testing.assert_allclose(sum(each), plain, rtol=1e-5)
    doubled, again = losses(f"loss.class_weights={[2.0] * 10}")
    np.testing.assert_allclose(doubled, 2.0 * plain, rtol=1e-5)
    np.testing.assert_allclose(again, measured, rtol=1e-6)


def drawn(epoch: int, batch: int = 9) -> np.ndarray:
    return balanced_order(EVERY, LABELS, 3, epoch, batch)


def test_every_class_is_drawn_equally_often():
    assert len(drawn(0)) == 99
    assert np.bincount(LABELS[drawn(0)]).tolist() == [33, 33, 33]
    assert sorted(np.bincount(LABELS[drawn(0, 10)]).tolist()) == [33, 33, 34]
    # The classes are mixed: no batch of nine lacks one for long.
    counts = np.array(
        [np.bincount(batch, minlength=3) for batch in LABELS[drawn(0)].reshape(11, 9)]
    )
    assert (counts > 0).mean() > 0.9


def test_the_order_is_a_function_of_seed_and_epoch():
    np.testing.assert_array_equal(drawn(4), drawn(4))
    assert (drawn(4) != drawn(5)).mean() > 0.9
    assert (balanced_order(EVERY, LABELS, 4, 4, 9) != drawn(4)).mean() > 0.9


def test_a_class_that_is_not_trained_on_is_left_out():
    order = balanced_order(EVERY[10:], LABELS, 3, 0, 9)
    assert np.bincount(LABELS[order]).tolist() == [0, 45, 45]


def test_training_draws_in_this_order(tiny, backend):
    def use(session: Session) -> None:
        labels = session.setup.data.labels
        order = session.orders.of(1)
        assert np.bincount(labels[order], minlength=10).tolist() == [16] * 10
        session.run(1)
        target = session.executable.read(session.graph("train")["target"])
        np.testing.assert_array_equal(target, labels[session.orders.of(0)[:16]])

    with_session(tiny("data.balance=true"), backend, use)
