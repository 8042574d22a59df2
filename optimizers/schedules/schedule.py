"""The learning rate as a function of the step, evaluated before training into a table.

t counts updates and is 0 at the first, lr is the optimizer's rate, T the end of the schedule. All
is computed in float64 and rounded once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import dataclass_transform

from ...common import records
from ...common.records import dataclass

Rates = NDArray[np.float64]
Steps = NDArray[np.int64]


def training_steps(epochs: float | None, max_steps: int | None, steps_per_epoch: int) -> int:
    """The length of training in steps; a fraction of a step is rounded up."""
    if max_steps is not None:
        return max_steps
    # A product such as 0.1 * 30 may lie an ulp above the intended whole number.
    return max(1, math.ceil((epochs or 0.0) * steps_per_epoch - 1e-6))


def in_steps(epochs: float, steps_per_epoch: int) -> int:
    """Epochs as the nearest whole number of steps, at least 1."""
    return max(1, round(epochs * steps_per_epoch))


@dataclass(frozen=True)
class Length:
    """The length of a training; ``path`` is the key of the config that errors begin with.

    ``unreached`` is told of what training does not reach, which is otherwise an error.
    """

    total_steps: int
    steps_per_epoch: int
    path: str = "schedule"
    unreached: Callable[[str], object] | None = None

    @property
    def t(self) -> Rates:
        """0, 1, ..., total_steps - 1."""
        return np.arange(self.total_steps, dtype=np.float64)

    def steps(self, steps: int | None, epochs: float | None) -> int:
        """What is given in steps or in epochs, in steps; the whole training if neither is."""
        if epochs is not None:
            return in_steps(epochs, self.steps_per_epoch)
        return self.total_steps if steps is None else steps


@dataclass(frozen=True, kw_only=True)
class Warmup:
    """Factor start_factor + (1 - start_factor) t / steps for t < steps, 1 from there on.

    It multiplies the schedule, which still runs from t = 0 (Goyal et al. 2017, 2.2, with
    a start above zero).
    """

    steps: int | None = None
    epochs: float | None = None
    start_factor: float = 0.1

    def factors(self, length: Length) -> Rates:
        part = np.minimum(length.t / length.steps(self.steps, self.epochs), 1.0)
        return self.start_factor + (1.0 - self.start_factor) * part


@dataclass_transform(kw_only_default=True, frozen_default=True)
@records.dataclass(frozen=True, kw_only=True)
class Schedule(ABC):
    """A learning rate for every step; what derives from it is a frozen dataclass of options.

    Those that end in ``_epochs`` are converted to steps.
    """

    kind: ClassVar[str]
    warmup: Warmup | None = None

    def __init_subclass__(cls) -> None:
        records.record(cls, frozen=True, kw_only=True)

    @abstractmethod
    def rates(self, lr: float, length: Length) -> Rates:
        """The rate of every step without warmup: (total_steps,).

        Raises ConfigError, beginning with the path, for a step that training does not reach.
        """

    def cycle_ends(self, length: Length) -> Steps | None:
        """How many steps are done whenever a cycle ends, rising; None for one without cycles."""
        return None

    @property
    def ends_with_training(self) -> bool:
        """Whether the rate of a step depends on the length of the training."""
        return False

    @property
    def is_proportional(self) -> bool:
        """Whether the rates are proportional to lr."""
        return True

    def table(self, lr: float, length: Length) -> NDArray[np.float32]:
        """The rate of every step: (total_steps,) float32. Raises what ``rates`` raises."""
        rates = self.rates(lr, length)
        if self.warmup is not None:
            rates = rates * self.warmup.factors(length)
        return rates.astype(np.float32)


def between(start: float, end: float, part: Rates, shape: str) -> Rates:
    """From start (part = 0) to end (part = 1) along a line or half a cosine wave."""
    if shape == "linear":
        return start + (end - start) * part
    return end + (start - end) * (1.0 + np.cos(math.pi * part)) / 2.0
