"""The error function, which NumPy lacks."""

from __future__ import annotations

import numpy as np

from ..base import Array

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969):
# erf(x) = x P(x^2) / Q(x^2) up to 0.46875, erfc(x) = e^(-x^2) P(x) / Q(x) up to 4; coefficients of
# the highest power first. The second also serves beyond 4, where erfc itself is below 2e-8.
_NEAR = 0.46875
_NEAR_P = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_NEAR_Q = (
    1.0,
    2.36012909523441209e1,
    2.44024637934444173e2,
    1.28261652607737228e3,
    2.84423683343917062e3,
)
_FAR_P = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_FAR_Q = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)


def erf(x: Array) -> Array:
    """2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x, in the precision of x.

    Computed in float64 always: in float32 the quotients alone would lose two bits of the result.
    """
    # Beyond 6 the result is 1 in both precisions; there e^(-x^2) would come to nothing.
    size = np.minimum(np.abs(x.astype(np.float64)), 6.0)
    near = np.minimum(size, _NEAR)
    square = near * near
    small = near * np.polyval(_NEAR_P, square) / np.polyval(_NEAR_Q, square)
    large = 1.0 - np.exp(-size * size) * np.polyval(_FAR_P, size) / np.polyval(_FAR_Q, size)
    return np.copysign(np.where(size <= _NEAR, small, large), x).astype(x.dtype)
