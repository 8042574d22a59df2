from __future__ import annotations

import numpy as np
from dnnstack.datasets.components import label_regions
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from numpy.typing import NDArray

masks = arrays(bool, array_shapes(min_dims=2, max_dims=2, max_side=12))


def by_flooding(mask: NDArray[np.bool_]) -> tuple[NDArray[np.int32], int]:
    labels = np.zeros(mask.shape, np.int32)
    count = 0
    for start in np.argwhere(mask).tolist():
        if labels[tuple(start)]:
            continue
        count += 1
        todo = [tuple(start)]
        while todo:
            y, x = todo.pop()
            inside = 0 <= y < mask.shape[0] and 0 <= x < mask.shape[1]
            if inside and mask[y, x] and not labels[y, x]:
                labels[y, x] = count
                todo += [(y + dy, x + dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return labels, count


@given(mask=masks)
def test_regions_are_those_of_a_flood(mask):
    labels, count = label_regions(mask)
    expected, number = by_flooding(mask)
    assert count == number
    np.testing.assert_array_equal(labels, expected)


@given(side=st.integers(1, 9))
def test_a_row_s_end_does_not_touch_the_next_row_s_beginning(side):
    mask = np.zeros((3, 2 * side), bool)
    mask[0, side:] = True
    mask[2, :side] = True
    assert label_regions(mask)[1] == 2
    mask[1] = mask[0]
    # Now they touch at a corner.
    assert label_regions(mask)[1] == 1


def test_one_long_spiral_is_one_region():
    mask = np.zeros((41, 41), bool)
    mask[::2] = True
    mask[1::4, -1] = True
    mask[3::4, 0] = True
    assert label_regions(mask)[1] == 1
