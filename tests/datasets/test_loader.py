from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.datasets import (
    epoch_order,
    evaluation_order,
    split_fold,
    split_validation,
    steps_per_epoch,
)
from hypothesis import example, given
from hypothesis import strategies as st

from ..support.stored import cases

seeds = st.integers(0, 2**63 - 1)


@given(count=st.integers(1, 500), seed=seeds, data=st.data())
def test_the_split_is_a_partition(count, seed, data):
    held = data.draw(st.integers(0, count - 1))
    train, validation = split_validation(count, held, seed)
    assert (train.dtype, validation.dtype) == (np.int32, np.int32)
    assert len(validation) == held
    assert (np.diff(train) > 0).all()
    assert (np.diff(validation) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(count))


def test_the_split_depends_on_the_seed_alone():
    np.testing.assert_array_equal(split_validation(100, 20, 1)[1], split_validation(100, 20, 1)[1])
    assert (split_validation(100, 20, 1)[1] != split_validation(100, 20, 2)[1]).any()
    # Not simply the first or the last samples.
    assert 0 < (split_validation(1000, 100, 1)[1] < 500).sum() < 100


def test_a_fraction_is_rounded_down():
    assert len(split_validation(99, 0.1, 1)[1]) == 9
    assert len(split_validation(99, 0.0, 1)[1]) == 0


@pytest.mark.parametrize(
    ("validation", "message"), cases(__file__, "a_split_that_leaves_nothing_is_refused")
)
def test_a_split_that_leaves_nothing_is_refused(validation, message):
    with pytest.raises(DatasetError, match=message):
        split_validation(100, validation, 1)


@given(count=st.integers(1, 300), batch=st.integers(1, 64), epoch=st.integers(0, 2**40), seed=seeds)
def test_an_epoch_is_whole_batches_of_different_samples(count, batch, epoch, seed):
    index = np.arange(1000, 1000 + 2 * count, 2, dtype=np.int32)
    if batch > count:
        with pytest.raises(DatasetError):
            epoch_order(index, seed, epoch, batch)
        return
    order = epoch_order(index, seed, epoch, batch)
    assert order.dtype == np.int32
    assert len(order) == count // batch * batch
    assert len(set(order.tolist())) == len(order)
    assert set(order.tolist()) <= set(index.tolist())


def test_the_order_is_keyed_by_seed_and_epoch():
    index = np.arange(1000, dtype=np.int32)
    first = epoch_order(index, 1, 0, 10)
    np.testing.assert_array_equal(first, epoch_order(index, 1, 0, 10))
    for other in (epoch_order(index, 1, 1, 10), epoch_order(index, 2, 0, 10), index):
        assert (first != other).mean() > 0.9


def test_an_epoch_without_a_step_names_the_fix():
    with pytest.raises(
        DatasetError, match=r"data\.batch_size: 64 .* 63 training samples, .* set it to 63"
    ):
        steps_per_epoch(63, 64)
    assert steps_per_epoch(64, 64) == 1


@given(count=st.integers(0, 200), batch=st.integers(1, 64))
def test_evaluation_covers_every_sample_once(count, batch):
    index = np.arange(5, 5 + count, dtype=np.int32)
    order = evaluation_order(index, batch)
    assert order.dtype == np.int32
    assert len(order) % batch == 0
    assert len(order) - count < batch
    np.testing.assert_array_equal(order[:count], index)
    assert (order[count:] == -1).all()


@pytest.mark.parametrize("stratified", [False, True])
def test_folds_hold_every_sample_once(stratified):
    labels = np.random.default_rng(2).choice(4, 103, p=(0.6, 0.2, 0.15, 0.05)).astype(np.int32)
    parts = [split_fold(103, 5, fold, 7, labels if stratified else None) for fold in range(5)]
    for train, held in parts:
        np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(103))
        np.testing.assert_array_equal(train, np.sort(train))
    held = [part for _, part in parts]
    np.testing.assert_array_equal(np.sort(np.concatenate(held)), np.arange(103))
    assert sorted(map(len, held)) == [20, 20, 21, 21, 21]
    counts = np.array([np.bincount(labels[part], minlength=4) for part in held])
    assert (np.ptp(counts, axis=0).max() <= 1) == stratified
    # Not the order of the file, and another one for another seed.
    assert (split_fold(103, 5, 0, 8)[1] != split_fold(103, 5, 0, 7)[1]).any()


@given(
    classes=st.lists(st.integers(0, 40), min_size=2, max_size=6).filter(any),
    seed=seeds,
    data=st.data(),
)
@example([1, 0, 3], 0, None)
def test_each_class_has_its_share_of_the_validation(classes, seed, data):
    labels = np.random.default_rng(1).permutation(np.repeat(np.arange(len(classes)), classes))
    labels = labels.astype(np.int32)
    count = len(labels)
    held = data.draw(st.integers(0, count - 1)) if data else 1
    train, validation = split_validation(count, held, seed, labels)
    assert (train.dtype, validation.dtype) == (np.int32, np.int32)
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(count))
    assert len(validation) == held
    assert (np.diff(validation) > 0).all()
    counts = np.bincount(labels[validation], minlength=len(classes))
    left = np.array(classes) - counts
    present = np.array(classes) > 0
    if held <= count - present.sum():
        assert left[present].min() >= 1
    if min(classes) > 1 and left.min() > 1:
        # Nearer to the share than one sample, as no class had to spare one.
        assert np.abs(counts - held * np.array(classes) / count).max() < 1


def test_the_shares_are_rounded_for_those_that_lack_most():
    labels = np.repeat(np.arange(3, dtype=np.int32), (10, 20, 5))
    # Shares of 2.29, 4.57 and 1.14.
    held = split_validation(35, 8, 3, labels)[1]
    assert np.bincount(labels[held]).tolist() == [2, 5, 1]
    # Of equals the first: 1.5 and 1.5.
    equal = np.repeat(np.arange(2, dtype=np.int32), 4)
    assert np.bincount(equal[split_validation(8, 3, 3, equal)[1]]).tolist() == [2, 1]
    # A class of one sample keeps it, and another one gives more.
    rare = np.array([0, 1, 1, 1, 1], np.int32)
    assert rare[split_validation(5, 3, 3, rare)[1]].tolist() == [1, 1, 1]
    assert sorted(rare[split_validation(5, 4, 3, rare)[1]].tolist()) == [0, 1, 1, 1]


def test_what_a_class_gives_is_at_the_cost_of_those_that_give_most():
    labels = np.repeat(np.arange(5, dtype=np.int32), (30, 20, 10, 2, 1))

    def given(validation: float) -> list[int]:
        held = split_validation(63, validation, 3, labels, each=True)[1]
        return np.bincount(labels[held], minlength=5).tolist()

    # In proportion 3, 2, 1, 0 and 0 of 6, and 6, 4, 2, 0 and 0 of 12.
    assert given(6) == [2, 2, 1, 1, 0]
    assert given(0.2) == [5, 4, 2, 1, 0]
    # More than is asked for, if there are more classes.
    assert given(1) == given(0.02) == given(0.001) == [1, 1, 1, 1, 0]
    assert given(0) == [0] * 5
    # In proportion, if that is enough.
    plain = split_validation(63, 32, 3, labels)[1]
    assert given(32) == np.bincount(labels[plain], minlength=5).tolist()


@given(count=st.integers(2, 200), seed=seeds, stratified=st.booleans(), data=st.data())
def test_barred_samples_are_never_validated_on(count, seed, stratified, data):
    barred = np.array(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    held = data.draw(st.integers(0, count - 1))
    labels = (np.arange(count) % 3).astype(np.int32)
    own = labels if stratified else None
    train, validation = split_validation(count, held, seed, own, barred)
    assert not barred[validation].any()
    np.testing.assert_array_equal(np.sort(np.concatenate([train, validation])), np.arange(count))
    assert len(validation) == min(held, (~barred).sum())
    none = split_validation(count, held, seed, own, np.zeros(count, np.bool_))
    np.testing.assert_array_equal(none[1], split_validation(count, held, seed, own)[1])
