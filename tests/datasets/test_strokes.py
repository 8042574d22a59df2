from __future__ import annotations

import numpy as np
import pytest
from dnnstack.common.errors import DatasetError
from dnnstack.common.random import key
from dnnstack.datasets import describe, load
from dnnstack.datasets.strokes_draw import draw
from hypothesis import given, settings
from hypothesis import strategies as st

STREAM = key(0, "strokes", "train")


@pytest.fixture(scope="module")
def sample():
    return draw(STREAM, 0, 1500)


def test_describe_gives_the_counts_of_the_options():
    info = describe("strokes")
    assert (info.shape, info.train_count, info.test_count) == ((1, 28, 28), 60_000, 10_000)
    info = describe("strokes", options={"train_count": 7, "test_count": 3, "seed": 5})
    assert (info.train_count, info.test_count) == (7, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_count": 10_000_001}, "'train_count': expects an integer from 1 to 10000000, got"),
        ({"test_count": 2**31 - 1}, "'test_count': expects an integer from 1 to .* got 2147483647"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_drawn(tmp_path, options, message):
    with pytest.raises(DatasetError, match=message):
        describe("strokes", options=options)
    with pytest.raises(DatasetError, match=message):
        load("strokes", "test", root=tmp_path, options=options)


def test_load_draws_the_first_samples_of_the_split_and_caches_them(tmp_path, monkeypatch):
    options = {"train_count": 300, "test_count": 200}
    train = load("strokes", "train", root=tmp_path, options=options)
    test = load("strokes", "test", root=tmp_path, options=options)
    assert (train.name, train.images.shape) == ("strokes/train", (300, 1, 28, 28))
    assert (test.name, test.images.shape) == ("strokes/test", (200, 1, 28, 28))
    assert (train.images.dtype, train.labels.dtype) == (np.uint8, np.int32)
    assert not train.images.flags.writeable
    images, labels = draw(STREAM, 0, 300)
    np.testing.assert_array_equal(train.images[:, 0], images)
    np.testing.assert_array_equal(train.labels, labels)

    def fail(*arguments: object) -> None:
        raise AssertionError("drawn again")

    monkeypatch.setattr("dnnstack.datasets.strokes.draw", fail)
    again = load("strokes", "train", root=tmp_path, options=options)
    np.testing.assert_array_equal(again.images, train.images)


def test_a_smaller_set_is_the_beginning_of_a_larger_one(tmp_path):
    small = load("strokes", "test", root=tmp_path, options={"test_count": 10})
    large = load("strokes", "test", root=tmp_path, options={"test_count": 200})
    np.testing.assert_array_equal(small.images, large.images[:10])
    np.testing.assert_array_equal(small.labels, large.labels[:10])


@settings(deadline=None, max_examples=20)
@given(start=st.integers(0, 1400), count=st.integers(1, 100))
def test_a_sample_does_not_depend_on_its_batch(sample, start, count):
    images, labels = draw(STREAM, start, start + count)
    np.testing.assert_array_equal(images, sample[0][start : start + count])
    np.testing.assert_array_equal(labels, sample[1][start : start + count])


def test_drawing_does_not_change_between_releases():
    # Raise Strokes.version together with these figures: caches are found by it. Labels are integer
    # arithmetic and the same everywhere; a pixel may differ by one on another processor.
    images, labels = draw(STREAM, 0, 64)
    assert labels[:12].tolist() == [5, 0, 3, 2, 1, 6, 8, 3, 1, 7, 2, 2]
    coarse = images.reshape(64, 4, 7, 4, 7).mean((2, 4))
    assert coarse.mean() == pytest.approx(34.20, abs=0.05)
    np.testing.assert_allclose(
        coarse[5], [[0, 19, 67, 0], [0, 123, 21, 0], [0, 144, 96, 59], [0, 21, 61, 3]], atol=1.0
    )
