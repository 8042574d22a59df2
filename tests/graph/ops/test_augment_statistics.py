"""Augmentation draws what it says, as often as it says."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.graph.augmentations import (
    AlternatingFlip,
    Cutout,
    RandomCrop,
    RandomFlip,
    Recolour,
    Shift,
)

from ...support.plain_augment import FILL, gathered


def marked(height: int, width: int, count: int) -> Array:
    """Pictures that are black but for one pixel in the middle, right of it when flipped not."""
    images = np.zeros((count, 1, height, width), np.uint8)
    images[:, 0, height // 2, width // 2] = 200
    return images


def test_every_corner_is_equally_likely():
    count, n = 9000, 1
    images = marked(5, 5, count)
    x = gathered((RandomCrop(n),), images, list(range(count)), count, 0)
    rows, columns = np.nonzero(x[:, 0].reshape(count, -1) > 0)[1] // 5, np.nonzero(x)[3]
    found = Counter(zip(rows.tolist(), columns.tolist(), strict=True))
    assert len(found) == 9
    # 1000 each; the deviation is 30.
    assert all(850 < times < 1150 for times in found.values())


def test_half_are_flipped_and_independently_of_the_epoch():
    count = 4000
    images = np.zeros((count, 1, 1, 2), np.uint8)
    images[..., 0] = 1
    order = list(range(count))
    flips = [
        gathered((RandomFlip(),), images, order, count, epoch)[:, 0, 0, 1] for epoch in range(3)
    ]
    for flip in flips:
        assert abs(flip.mean() - 0.5) < 0.04
    for one, other in ((0, 1), (1, 2), (0, 2)):
        assert abs((flips[one] == flips[other]).mean() - 0.5) < 0.04


def test_alternating_flips_alternate():
    count = 2000
    images = np.zeros((count, 1, 1, 2), np.uint8)
    images[..., 0] = 1
    first, second, third = (
        gathered((AlternatingFlip(),), images, list(range(count)), count, epoch)[:, 0, 0, 1]
        for epoch in range(3)
    )
    np.testing.assert_array_equal(second, 1 - first)
    np.testing.assert_array_equal(third, first)
    assert abs(first.mean() - 0.5) < 0.05


def test_two_of_a_kind_are_drawn_apart():
    count = 1000
    images = np.zeros((count, 1, 1, 2), np.uint8)
    images[..., 0] = 1
    twice = gathered((RandomFlip(), RandomFlip()), images, list(range(count)), count, 0)
    # Under one key they would cancel out.
    assert 0.4 < twice[:, 0, 0, 1].mean() < 0.6


def test_cutout_cuts_its_size_anywhere():
    count = 2000
    images = np.full((count, 1, 5, 5), 9, np.uint8)
    x = gathered((Cutout(3),), images, list(range(count)), count, 0)[:, 0]
    assert set((x == FILL).sum((1, 2)).tolist()) == {9}
    # 3 x 3 corners: a border pixel's share is 1/9 at the corner, 9/9 in the middle.
    assert (x == FILL).mean(0)[2, 2] == 1.0
    assert abs((x == FILL).mean(0)[0, 0] - 1 / 9) < 0.03


def test_angles_and_moves_fill_their_range():
    """The centre of mass of a dot tells where it went."""
    count = 3000
    images = np.zeros((count, 1, 9, 9), np.uint8)
    images[:, 0, 4, 4] = 255
    x = gathered((Shift(2.0),), images, list(range(count)), count, 0)[:, 0]
    down = (x * np.arange(9)[:, None]).sum((1, 2)) / x.sum((1, 2)) - 4
    right = (x * np.arange(9)).sum((1, 2)) / x.sum((1, 2)) - 4
    for moved in (down, right):
        assert moved.min() < -1.95
        assert moved.max() > 1.95
        assert abs(moved.mean()) < 0.1
        assert abs(moved.std() - 2 / np.sqrt(3)) < 0.05
    assert abs(np.corrcoef(down, right)[0, 1]) < 0.06


def test_every_order_of_colours_and_every_negative_is_equally_likely():
    count = 9600
    images = np.zeros((count, 3, 1, 1), np.uint8)
    images[:] = np.array([10, 20, 30], np.uint8)[:, None, None]
    x = gathered((Recolour(),), images, list(range(count)), count, 0)
    found = Counter(map(tuple, x.reshape(count, 3).astype(int).tolist()))
    assert len(found) == 48
    # 200 each; the deviation is 14.
    assert all(140 < times < 260 for times in found.values())
    plain = {tuple(min(v, 255 - v) for v in each) for each in found}
    assert plain == set(permutations((10, 20, 30)))
