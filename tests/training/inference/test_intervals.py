from __future__ import annotations

import numpy as np
import pytest
from dnnstack.training.inference.intervals import mcnemar, paired, wilson

from ...support.stored import cases


@pytest.mark.parametrize(("right", "count", "low", "high"), cases(__file__, "published_intervals"))
def test_published_intervals(right, count, low, high):
    assert wilson(right, count) == pytest.approx((low, high), abs=5e-5)
    mirrored = wilson(count - right, count)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_the_ends_are_exact():
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)


def test_the_interval_of_paired_differences_is_that_of_a_table_with_two_pictures_more():
    # One picture that only the first gets right, seven that only the second does, of 21.
    found = paired(np.array([1.0] + [-1.0] * 7 + [0.0] * 13))
    first, second = 2 / 23, 8 / 23
    deviation = ((first + second - (first - second) ** 2) / 23) ** 0.5
    middle = first - second
    expected = (middle - 1.959964 * deviation, middle + 1.959964 * deviation)
    assert found == pytest.approx(expected, rel=1e-6)
    assert paired(np.zeros(0)) == (-1.0, 1.0)


@pytest.mark.parametrize(("first", "second", "p"), cases(__file__, "mcnemar"))
def test_mcnemar(first, second, p):
    assert mcnemar(first, second) == pytest.approx(p, rel=0.05)
    assert mcnemar(second, first) == mcnemar(first, second)


def test_the_two_ways_of_mcnemar_agree_where_they_meet():
    assert mcnemar(480, 520) == pytest.approx(0.2174483, rel=1e-6)
    assert mcnemar(480, 521) == pytest.approx(0.2061299, rel=1e-6)
