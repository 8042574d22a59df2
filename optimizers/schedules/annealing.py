"""Schedules with an end: poly (Caffe), cosine, one cycle, and piecewise linear."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from ...common.options import (
    LARGEST,
    Check,
    Count,
    Epochs,
    Fraction,
    Listed,
    NotNegative,
    OptionError,
    Positive,
    instead_of,
    rising,
)
from .schedule import Length, Rates, Schedule, between


class _Ending(Schedule):
    """A schedule of t / T, T being the training's length unless it is given."""

    max_steps: Annotated[
        Count | None, "Step T at which the end is reached; default: the training's length."
    ] = None
    max_epochs: Annotated[
        Epochs | None, instead_of("max_steps", "max_epochs"), "Like max_steps, in epochs."
    ] = None

    def part(self, length: Length) -> Rates:
        """t / T, and 1 from T on."""
        return np.minimum(length.t / length.steps(self.max_steps, self.max_epochs), 1.0)

    @property
    def ends_with_training(self) -> bool:
        return self.max_steps is None and self.max_epochs is None


class Poly(_Ending):
    """lr_t = lr * (1 - t / T) ** power, 0 from T on."""

    kind = "poly"
    power: Annotated[Positive, "The exponent; 1 is a straight line."] = 1.0

    def rates(self, lr: float, length: Length) -> Rates:
        return lr * (1.0 - self.part(length)) ** self.power


class Cosine(_Ending):
    """lr_t = min_lr + (lr - min_lr) * (1 + cos(pi * t / T)) / 2, min_lr from T on.

    Source: Loshchilov and Hutter 2017, eq. 5, without restarts.
    """

    kind = "cosine"
    min_lr: Annotated[
        NotNegative,
        "Learning rate at the end, also if a group, or rest under muon, has its own lr; "
        "lr_factor multiplies it too.",
    ] = 0.0

    def rates(self, lr: float, length: Length) -> Rates:
        return between(lr, self.min_lr, self.part(length), "cosine")

    @property
    def is_proportional(self) -> bool:
        return self.min_lr == 0


class OneCycle(Schedule):
    """Up from start_factor * lr to lr, then down to end_factor * lr at the training's end.

    The peak lies at t = peak_fraction T - 1 and the end at T - 1, as in PyTorch's OneCycleLR of two
    phases. Source: Smith and Topin 2019.
    """

    kind = "one_cycle"
    peak_fraction: Annotated[
        float,
        Interval(gt=0, lt=1),
        "Share of the training at which lr is reached. If that is less than a step, the first has "
        "lr, and that of PyTorch's OneCycleLR less.",
    ] = 0.3
    start_factor: Annotated[Fraction, "First rate, as a share of lr."] = 0.04
    end_factor: Annotated[Fraction, "Last rate, as a share of lr."] = 0.0
    shape: Annotated[Literal["cosine", "linear"], "Shape of both slopes, cosine or linear."] = (
        "cosine"
    )

    def rates(self, lr: float, length: Length) -> Rates:
        t, last = length.t, length.total_steps - 1.0
        peak = max(self.peak_fraction * length.total_steps - 1.0, 0.0)
        # Without steps before or after the peak that slope is not used, so its divisor may be 1.
        rise = np.clip(t / (peak or 1.0), 0.0, 1.0)
        fall = np.clip((t - peak) / ((last - peak) or 1.0), 0.0, 1.0)
        up = between(self.start_factor, 1.0, rise, self.shape)
        down = between(1.0, self.end_factor, fall, self.shape)
        return lr * np.where(t < peak, up, down)

    @property
    def ends_with_training(self) -> bool:
        return True


_Step = Annotated[int, Interval(ge=0, le=LARGEST)]


def _points(own: str) -> Check:
    """Rising points in one of three units, one for each factor."""

    def test(points: Any, others: Mapping[str, Any]) -> None:
        units = [others.get(key) for key in ("at", "at_epochs")]
        given = [key for key, unit in zip(("at", "at_epochs"), units, strict=True) if unit]
        if points is None:
            known = {"at", "at_epochs"} <= others.keys()
            if own == "at_fractions" and known and not given:
                raise OptionError("required: at, at_epochs or at_fractions", missing=True)
            return
        if given:
            raise OptionError(f"give either {given[0]} or {own}, not both")
        if "factors" in others and len(points) != len(others["factors"]):
            raise OptionError(f"expected a point for each of {len(others['factors'])} factors")
        rising("points").test(points, others)

    return Check(test)


class Piecewise(Schedule):
    """lr times a factor that is interpolated linearly between points.

    It is constant before the first point and after the last.
    """

    kind = "piecewise"
    factors: Annotated[Listed[NotNegative], "The factor of lr at each point."]
    at: Annotated[Listed[_Step] | None, _points("at"), "The points in steps, rising."] = None
    at_epochs: Annotated[
        Listed[NotNegative] | None, _points("at_epochs"), "The points in epochs."
    ] = None
    at_fractions: Annotated[
        Listed[Fraction] | None,
        _points("at_fractions"),
        "The points as shares of the training's steps, rounded down.",
    ] = None

    def rates(self, lr: float, length: Length) -> Rates:
        return lr * np.interp(length.t, self._steps(length), self.factors)

    def _steps(self, length: Length) -> list[int]:
        if self.at is not None:
            return list(self.at)
        if self.at_epochs is not None:
            return [round(epoch * length.steps_per_epoch) for epoch in self.at_epochs]
        # 0.57 of 100 is an ulp below the intended whole number.
        return [math.floor(f * length.total_steps + 1e-6) for f in self.at_fractions or ()]

    @property
    def ends_with_training(self) -> bool:
        return self.at_fractions is not None
