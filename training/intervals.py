"""How sure a share of right answers is."""

from __future__ import annotations

from math import sqrt

# The standard normal distribution has 95% of its mass between minus and plus this.
_Z = 1.959963984540054


def wilson(right: int, count: int) -> tuple[float, float]:
    """The 95% confidence interval of a share, (p + z^2 / 2n +- z s) / (1 + z^2 / n).

    s^2 = p (1 - p) / n + z^2 / 4 n^2; (0, 1) without a count. It holds for few pictures and for
    shares near 0 and 1 too (Wilson 1927, "Probable inference"; Newcombe 1998, method 3).
    """
    if not count:
        return 0.0, 1.0
    p, square = right / count, _Z * _Z / count
    middle = p + square / 2
    half = _Z * sqrt(p * (1 - p) / count + square / (4 * count))
    low, high = ((middle + side) / (1 + square) for side in (-half, half))
    # Without rounding the ends of a whole interval are exact.
    return (low if right else 0.0), (high if right < count else 1.0)
