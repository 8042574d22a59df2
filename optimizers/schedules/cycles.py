"""Cosine with warm restarts: the learning rate falls again and again, and each fall is a cycle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval

from ...common.errors import ConfigError
from ...common.options import Check, Count, Epochs, NotNegative, OptionError
from .schedule import Length, Rates, Schedule, Steps, between

_KEYS = ("cycles", "length", "length_epochs")


def _one(own: str) -> Check:
    """Exactly one of the three keys is given."""

    def test(value: Any, others: Mapping[str, Any]) -> None:
        before = _KEYS[: _KEYS.index(own)]
        given = [key for key in before if others.get(key) is not None]
        if value is not None and given:
            raise OptionError(f"give either {given[0]} or {own}, not both")
        if value is None and not given and own == _KEYS[-1] and set(before) <= others.keys():
            raise OptionError("required: cycles, length or length_epochs", missing=True)

    return Check(test)


class CosineRestarts(Schedule):
    """As cosine, but from lr anew in every cycle; t and T are counted in the cycle.

    lr_t = min_lr + (lr - min_lr) * (1 + cos(pi * t / T)) / 2. Sources: Loshchilov and Hutter 2017,
    eq. 5; with cycles of equal length, Huang et al. 2017, eq. 2.
    """

    kind = "cosine_restarts"
    cycles: Annotated[Count | None, "Number of cycles, which fill the training."] = None
    length: Annotated[
        Count | None, _one("length"), "Steps of the first cycle, instead of cycles."
    ] = None
    length_epochs: Annotated[Epochs | None, _one("length_epochs"), "Like length, in epochs."] = None
    multiplier: Annotated[
        float, Interval(ge=1, le=1000), "How many times as long each cycle is as the one before."
    ] = 1.0
    min_lr: Annotated[
        NotNegative,
        "Learning rate at the end of a cycle, also if a group, or rest under muon, has its own lr; "
        "lr_factor multiplies it too.",
    ] = 0.0

    def rates(self, lr: float, length: Length) -> Rates:
        ends = self._ends(length)
        starts = np.concatenate([[0], ends[:-1]])
        cycle = np.searchsorted(ends, length.t, side="right")
        part = (length.t - starts[cycle]) / (ends - starts)[cycle]
        return between(lr, self.min_lr, part, "cosine")

    def cycle_ends(self, length: Length) -> Steps:
        ends = self._ends(length)
        return ends[ends <= length.total_steps]

    def _ends(self, length: Length) -> Steps:
        """How many steps are done at the end of each cycle, up to the end of training or beyond."""
        total, growth = length.total_steps, math.log(self.multiplier)
        if self.cycles is None:
            first = length.steps(self.length, self.length_epochs)
            factor = self.multiplier - 1.0
            ratio = total / first
            count = math.ceil(math.log1p(ratio * factor) / growth if growth else ratio)
            # One more: the logarithm of what ends with the training may lie an ulp below.
            index = np.arange(1.0, count + 2.0)
            lengths = np.expm1(index * growth) / factor if growth else index
            return np.asarray(np.rint(first * lengths), np.int64)
        if self.cycles > total:
            raise ConfigError(
                f"{length.path}.cycles: {self.cycles} cycles do not fit into the {total} steps of "
                "the training; use fewer, or train longer"
            )
        index = np.arange(1.0, self.cycles + 1.0)
        share = index / self.cycles
        if growth:
            # (m^k - 1) / (m^n - 1), so written that no power is too large.
            falls = np.expm1(-index * growth) / math.expm1(-self.cycles * growth)
            share = np.exp((index - self.cycles) * growth) * falls
        ends = np.rint(share * total)
        if np.any(np.diff(ends, prepend=0.0) < 1.0):
            raise ConfigError(
                f"{length.path}.multiplier: the first of {self.cycles} cycles have no step among "
                f"the {total} of the training; use fewer cycles, a smaller multiplier, or train "
                "longer"
            )
        return np.asarray(ends, np.int64)

    @property
    def ends_with_training(self) -> bool:
        return self.cycles is not None

    @property
    def is_proportional(self) -> bool:
        return self.min_lr == 0
