"""Schedules that change by a factor at some steps, or never; names and formulas are Caffe's.

Source: Jia et al. 2014, ``SolverParameter.lr_policy``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from ...common.errors import ConfigError
from ...common.options import (
    Check,
    Count,
    Epochs,
    Form,
    Listed,
    OptionError,
    Positive,
    either,
    is_number,
    rising,
)
from .schedule import Length, Rates, Schedule, in_steps


class Fixed(Schedule):
    """lr_t = lr."""

    kind = "fixed"

    def rates(self, lr: float, length: Length) -> Rates:
        return np.full(length.total_steps, lr)


class Step(Schedule):
    """lr_t = lr * gamma ** floor(t / step_size)."""

    kind = "step"
    step_size: Annotated[Count | None, "Steps between two changes."] = None
    step_size_epochs: Annotated[
        Epochs | None, either("step_size", "step_size_epochs"), "Epochs between two changes."
    ] = None
    gamma: Annotated[Positive, "Factor of each change."] = 0.1

    def rates(self, lr: float, length: Length) -> Rates:
        size = length.steps(self.step_size, self.step_size_epochs)
        return lr * self.gamma ** np.floor(length.t / size)


def _read_factors(value: Any) -> Any:
    values = value if isinstance(value, (list, tuple)) else [value]
    if not values or not all(is_number(v) and 0 < v <= 1e6 for v in values):
        raise OptionError("expected a number above 0, or a list with one for each milestone")
    return tuple(float(v) for v in values)


def _write_factors(values: Any) -> Any:
    return values[0] if len(values) == 1 else list(values)


_ABOVE_0 = {"type": "number", "exclusiveMinimum": 0}
_FACTORS = Form(
    _read_factors, _write_factors, {"anyOf": [_ABOVE_0, {"type": "array", "items": _ABOVE_0}]}
)


def _one_each(gamma: Any, others: Mapping[str, Any]) -> None:
    changes = others.get("milestones") or others.get("milestones_epochs") or gamma
    if len(gamma) not in (1, len(changes)):
        raise OptionError(f"expected one number, or {len(changes)} numbers, one for each milestone")


class Multistep(Schedule):
    """lr_t = lr * gamma ** (number of milestones <= t), or the product of that many gammas."""

    kind = "multistep"
    milestones: Annotated[
        Listed[Count] | None, rising("milestones"), "Steps at which the rate changes."
    ] = None
    milestones_epochs: Annotated[
        Listed[Epochs] | None,
        rising("milestones"),
        either("milestones", "milestones_epochs"),
        "Epochs at which the rate changes.",
    ] = None
    gamma: Annotated[
        tuple[float, ...],
        _FACTORS,
        Check(_one_each),
        "Factor of each change: one for all, or one for each.",
    ] = (0.1,)

    def rates(self, lr: float, length: Length) -> Rates:
        milestones = self._reached(length)
        gamma = self.gamma * (len(milestones) if len(self.gamma) == 1 else 1)
        factors = np.cumprod([1.0, *gamma])
        return np.asarray(lr * factors[np.searchsorted(milestones, length.t, side="right")])

    def _reached(self, length: Length) -> NDArray[np.int64]:
        key, unit = "milestones", "step"
        given: tuple[float, ...] = self.milestones or ()
        steps = [int(step) for step in given]
        if self.milestones is None:
            key, unit, given = "milestones_epochs", "epoch", self.milestones_epochs or ()
            steps = [in_steps(epoch, length.steps_per_epoch) for epoch in given]
        total, per_epoch = length.total_steps, length.steps_per_epoch
        for value, step in zip(given, steps, strict=True):
            if step >= total:
                ends = f"{total} steps ({per_epoch} per epoch)"
                if unit == "epoch":
                    ends = f"{total / per_epoch:g} epochs of {per_epoch} steps"
                text = (
                    f"{length.path}.{key}: {unit} {value:g} is never reached, training ends after "
                    f"{ends}"
                )
                if length.unreached is None:
                    raise ConfigError(f"{text}; use smaller milestones or train longer")
                length.unreached(text)
        return np.array(steps, np.int64)
