from __future__ import annotations

import numpy as np
from dnnstack.datasets.components import label_regions
from hypothesis import given
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
