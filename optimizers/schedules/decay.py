"""Schedules that fall at every step, without an end; exp and inv are Caffe's.

Source: Jia et al. 2014, ``SolverParameter.lr_policy``.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from annotated_types import Interval

from ...common.options import NotNegative
from .schedule import Length, Rates, Schedule


class Exp(Schedule):
    """lr_t = lr * gamma ** t."""

    kind = "exp"
    gamma: Annotated[float, Interval(gt=0, le=1), "Factor of every step; near 1, such as 0.9999."]

    def rates(self, lr: float, length: Length) -> Rates:
        return lr * self.gamma**length.t


class Inv(Schedule):
    """lr_t = lr * (1 + gamma * t) ** -power."""

    kind = "inv"
    gamma: Annotated[NotNegative, "How fast the rate falls, per step."]
    power: Annotated[NotNegative, "The exponent."]

    def rates(self, lr: float, length: Length) -> Rates:
        return lr * (1.0 + self.gamma * length.t) ** -self.power


class Compounding(Schedule):
    """lr_t = lr * product over i = 1..t of 1 / (1 + decay * i).

    The rate is multiplied by 1 / (1 + decay t) at every step t, so it falls as e^(-decay t^2 / 2)
    at first: far faster than the single 1 / (1 + decay t) of ``inv`` with power 1.
    """

    kind = "compounding"
    decay: Annotated[NotNegative, "Decay, per step; it compounds, so it must be very small."]

    def rates(self, lr: float, length: Length) -> Rates:
        return np.asarray(lr * np.cumprod(1.0 / (1.0 + self.decay * length.t)), np.float64)
