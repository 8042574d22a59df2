from __future__ import annotations

import pytest
from dnnstack.training.intervals import wilson


@pytest.mark.parametrize(
    ("right", "count", "low", "high"),
    [
        # Newcombe 1998, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_published_intervals(right: int, count: int, low: float, high: float) -> None:
    assert wilson(right, count) == pytest.approx((low, high), abs=5e-5)
    mirrored = wilson(count - right, count)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=5e-5)


def test_the_ends_are_exact() -> None:
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0
    assert wilson(0, 0) == (0.0, 1.0)
