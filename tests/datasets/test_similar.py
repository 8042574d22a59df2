"""Pictures that are there twice: their hash, and which pairs are found."""

from __future__ import annotations

import numpy as np
import pytest
from dnnstack.datasets import similar
from dnnstack.datasets.similar import difference_hash, pairs

RAMP = np.tile(np.arange(9, dtype=np.uint8) * 20, (3, 8, 1))
RANDOM = np.random.default_rng(1)
ALL = (1 << 64) - 1


def bumped(row: int, column: int) -> np.ndarray:
    """A black picture of 8 x 9 pixels, one of which is white."""
    found = np.zeros((1, 8, 9), np.uint8)
    found[0, row, column] = 255
    return found


@pytest.mark.parametrize(
    ("picture", "wanted"),
    [
        (RAMP, ALL),
        (RAMP[..., ::-1], 0),
        (np.full((1, 40, 30), 7, np.uint8), 0),
        # A cell that is lighter than its left neighbour sets the bit of that one.
        (bumped(0, 1), 1 << 63),
        (bumped(7, 8), 1),
        (bumped(3, 0), 0),
        (bumped(1, 2), 1 << 54),
        # Larger and smaller ones have the same cells.
        (RAMP.repeat(3, 1).repeat(3, 2), ALL),
        (RAMP[:, :4, ::2], ALL),
        (np.concatenate([RAMP, RAMP[:2, :, ::-1]]), ALL),
    ],
)
def test_a_hash_says_where_a_picture_grows_lighter(picture, wanted):
    found = difference_hash(picture)
    if picture.shape[2] == 5:
        # A cell may have no pixel of its own.
        assert found
        assert found & ~wanted == 0
    else:
        assert found == wanted


def smooth(count: int) -> np.ndarray:
    """Pictures (N, 1, 16, 18) of random cells."""
    cells = RANDOM.integers(20, 220, (count, 1, 8, 9), np.uint8)
    return cells.repeat(2, 2).repeat(2, 3)


def test_pairs_are_equal_or_hardly_differ():
    images = smooth(40)
    images[7] = images[3]
    images[31] = images[3]
    images[20] = images[11] + RANDOM.integers(-4, 5, images[11].shape).astype(np.int8).view(
        np.uint8
    )
    images[25] = 255 - images[12]
    images[26] = images[13] // 2 + 10
    found = pairs(images, np.arange(40, dtype=np.int32))
    assert [pair[:2] for pair in found] == [(3, 7), (3, 31), (11, 20), (13, 26)]
    assert [pair[2] for pair in found[:2]] == [1.0, 1.0]
    assert all(0.99 <= pair[2] < 1.0 for pair in found[2:])
    # Places are those in the index.
    some = np.array([31, 5, 11, 3, 20], np.int32)
    assert [pair[:2] for pair in pairs(images, some)] == [(0, 3), (2, 4)]
    floats = images.astype(np.float32)
    assert [pair[:2] for pair in pairs(floats, some)] == [(0, 3)]
    assert pairs(images, np.zeros(0, np.int32)) == []


@pytest.mark.parametrize(
    ("flipped", "found"),
    [(0, True), (0b111111, True), (0b1111111, False), (0b111111 << 58, True), (0x7 << 30, True)],
)
def test_candidates_differ_in_six_bits_of_any_place(flipped, found, monkeypatch):
    images = smooth(60)
    images[50] = images[10] // 2
    codes = {each.tobytes(): int(RANDOM.integers(0, 1 << 63)) for each in images}
    codes[images[50].tobytes()] = codes[images[10].tobytes()] ^ flipped
    monkeypatch.setattr(similar, "difference_hash", lambda each: codes[each.tobytes()])
    pair = [each[:2] for each in pairs(images, np.arange(60, dtype=np.int32))]
    assert pair == [(10, 50)] * found


def test_what_is_alike_by_its_hash_alone_is_no_pair(monkeypatch):
    monkeypatch.setattr(similar, "difference_hash", lambda each: 5)
    assert pairs(smooth(6), np.arange(6, dtype=np.int32)) == []
