"""How sure a share of right answers is, and a difference between two networks."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, comb, cos, erfc, inf, pi, sin, sqrt
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

# The standard normal distribution has 95% of its mass between minus and plus this.
_Z = 1.959963984540054
# Up to this number of pairs the binomial distribution is summed.
_EXACT = 1000
# Up to this number of differences all their signs are tried.
_SIGNED = 16
# Not far below, floating-point numbers become 0.
_SMALLEST = 1e-300
_ROUNDED = 2.0**-53


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


def paired(differences: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% confidence interval of a mean of differences of -1 to 1, one for each picture.

    m +- z s / sqrt(n + 2), where mean m and variance s^2 count one picture more at -1 and one at 1;
    (-1, 1) without a picture. Where the differences are -1, 0 and 1 it is the interval for paired
    shares of Bonett and Price 2012, "Adjusted Wald confidence interval for a difference of binomial
    proportions based on paired data", which holds for few differing pairs too.
    """
    if not len(differences):
        return -1.0, 1.0
    count = len(differences) + 2
    mean = float(differences.sum()) / count
    variance = (float((differences**2).sum()) + 2) / count - mean * mean
    half = _Z * sqrt(variance / count)
    return max(mean - half, -1.0), min(mean + half, 1.0)


def normal(differences: NDArray[np.float64]) -> tuple[float, float]:
    """The 95% confidence interval of a mean of differences of any size, m +- z s / sqrt(n)."""
    count, mean = len(differences), float(differences.mean())
    half = _Z * float(differences.std(ddof=1)) / sqrt(count) if count > 1 else inf
    return mean - half, mean + half


def above(values: Sequence[float], target: float) -> float:
    """The probability of a mean as far above ``target`` if that is the true one: p of a t test.

    One-sided; values: two or more, drawn from a normal law. What is less than 2^-53 is lost in
    rounding, and given as that. Sources: Student 1908; Abramowitz and Stegun 1964, 26.7.3 and 4.
    """
    free = len(values) - 1
    far, error = fmean(values) - target, stdev(values) / sqrt(len(values))
    if not error:
        return _ROUNDED if far > 0 else 1.0
    angle, odd = atan(far / error / sqrt(free)), free % 2
    term, total = cos(angle) if odd else 1.0, 0.0
    for power in range(odd, free - 1, 2):
        term *= (power - 1) / power * cos(angle) ** 2 if power > 1 else 1.0
        total += term
    within = 2 / pi * (angle + sin(angle) * total) if odd else sin(angle) * total
    return max((1 - within) / 2, _ROUNDED)


def sign_flip(differences: NDArray[np.float64]) -> float:
    """The probability of a mean at least as far from 0 between two equally good networks.

    If they are, each difference has either sign alike. Up to 16 that are not 0, the two-sided test
    counts all ways to sign them, exactly; beyond, the sum of the signed ones is nearly normal, with
    the variance sum d^2. Source: Fisher 1935, "The Design of Experiments", section 21.
    """
    found = differences[differences != 0]
    if not len(found):
        return 1.0
    total = abs(float(found.sum()))
    if len(found) > _SIGNED:
        return erfc(total / sqrt(2 * float((found**2).sum())))
    sums = np.zeros(1)
    for each in found:
        sums = np.concatenate([sums + each, sums - each])
    # What differs by rounding alone is as far.
    return float(np.mean(np.abs(sums) >= total * (1 - 1e-12)))


def mcnemar(first: int, second: int) -> float:
    """The probability of a split at least as uneven between two equally good networks.

    first, second: the pictures that only the one or only the other network gets right. Up to 1000
    of them the two-sided binomial test with p = 1/2, exactly; beyond, chi^2 = (|first - second| -
    1)^2 / (first + second) with one degree of freedom. Sources: McNemar 1947, "Note on the sampling
    error of the difference between correlated proportions"; Edwards 1948 for the correction by 1.
    """
    count, fewer = first + second, min(first, second)
    if count <= _EXACT:
        tail = sum(comb(count, k) for k in range(fewer + 1))
        # Whole numbers of any length, whose quotient is rounded once.
        return min(1.0, 2 * tail / (1 << count))
    return erfc((abs(first - second) - 1 if first != second else 0) / sqrt(2 * count))


def probability_text(p: float) -> str:
    """``= 0.012``, ``= 1.2e-08``; of what is hardly a floating-point number, only a bound."""
    if p < _SMALLEST:
        return f"< {_SMALLEST:g}"
    return f"= {p:.3f}" if p >= 0.001 else f"= {p:.1e}"
