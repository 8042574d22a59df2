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


def test_splits_and_seeds_have_no_picture_in_common(tmp_path):
    def pictures(split: str, seed: int) -> set[bytes]:
        options = {"train_count": 1000, "test_count": 1000, "seed": seed}
        data = load("strokes", split, root=tmp_path, options=options)  # type: ignore[arg-type]
        return {image.tobytes() for image in data.images}

    sets = [pictures("train", 0), pictures("test", 0), pictures("train", 1)]
    assert [len(each) for each in sets] == [1000, 1000, 1000]
    assert len(set.union(*sets)) == 3000


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


def test_every_digit_comes_about_as_often(sample):
    counts = np.bincount(sample[1], minlength=10)
    # Five standard deviations of a binomial count.
    assert np.abs(counts - 150).max() < 5 * (1500 * 0.1 * 0.9) ** 0.5


def test_pictures_have_the_format_of_mnist(sample):
    images = sample[0].astype(np.int64)
    ruler = np.arange(28)
    mass = images.sum((1, 2))
    assert (mass > 255 * 5).all()
    for axis in (1, 2):
        profile = images.sum(axis)
        used = profile > 0
        first, last = used.argmax(1), 27 - used[:, ::-1].argmax(1)
        # The ink fits into the 20x20 box, wherever that lies.
        assert (last - first + 1).max() == 20
        centre = (profile * ruler).sum(1) / mass
        # Nearest whole pixel, except where the box would leave the field.
        free = (first > 0) & (last < 27)
        assert (np.abs(centre[free] - 14.0) <= 0.5 + 1e-9).all()
        assert free.mean() > 0.98
    sides = [(images.max(axis) > 0).sum(1) for axis in (1, 2)]
    assert (np.maximum(*sides) >= 18).mean() > 0.97
    assert (images.max((1, 2)) > 250).mean() > 0.9
    assert 0.10 < (images > 0).mean() < 0.30


def test_pictures_are_light_on_a_black_border(sample):
    images = sample[0]
    assert np.median(images) == 0
    assert (images[:, [0, -1], :] > 0).mean() < 0.01


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
