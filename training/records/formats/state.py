"""How far a training has come: metrics, snapshots, and what a checkpoint says beside its arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....common.typed_json import Count, Finite

if TYPE_CHECKING:
    from ....configs.schema.run import GoalConfig, TrainConfig


@dataclass(frozen=True)
class Snapshot:
    """Everything that changes from step to step: arrays by name, metric sums."""

    step: int
    sums: NDArray[np.float64]
    arrays: dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class Metrics:
    """Mean loss, right answers and samples; ``accuracy`` is their ratio, 0 to 1.

    If the targets are numbers, ``spread`` is their variance, ``correct`` the sum of squared errors,
    and R2 takes the place of the accuracy: 1 - correct / count / spread.
    """

    loss: float
    correct: float
    count: int
    spread: float | None = None

    @classmethod
    def from_sums(
        cls, sums: Sequence[float] | NDArray[Any], spread: float | None = None
    ) -> Metrics:
        """sums: (3,) loss summed over samples, right answers or squared errors, samples."""
        count, second = int(sums[2]), float(sums[1])
        loss = float(sums[0]) / count if count else math.nan
        whole = spread is None and second.is_integer()
        return cls(loss, int(second) if whole else second, count, spread)

    @property
    def measure(self) -> str:
        """What ``accuracy`` is called: see ``common.targets.MEASURES``."""
        return "accuracy" if self.spread is None else "r2"

    @property
    def accuracy(self) -> float:
        if not self.count:
            return math.nan
        share = self.correct / self.count
        if self.spread is None:
            return share
        # Of targets that are all equal no variance can be explained.
        return 1.0 - share / self.spread if self.spread else float(share == 0.0)


def shown(measure: str, value: float) -> str:
    """A measure as a person reads it: "97.12%", "R2 0.4312"."""
    return f"R2 {value:.4f}" if measure == "r2" else f"{value:.2%}"


@dataclass(frozen=True)
class Best:
    """The best validation so far: highest accuracy, then lowest loss, or by the loss alone."""

    step: Count
    accuracy: Finite
    loss: Finite
    measure: str = "accuracy"

    def to_json(self) -> dict[str, Any]:
        """Without the name of the accuracy, as before there were others."""
        hidden = () if self.measure != "accuracy" else ("measure",)
        return {key: value for key, value in vars(self).items() if key not in hidden}


@dataclass(frozen=True)
class State:
    """Where training stands after ``step`` updates.

    ``sums`` are the running (loss, right answers, samples) since the log line of step
    ``window_start``. ``unimproved`` counts the validations since ``best``; ``validation_due``: that
    of this step is still to come. The rates of the schedule are multiplied by ``rate_factor``,
    lowered at each of the ``rollbacks``. ``measured``: accuracy and loss as last compared with the
    goal.
    """

    step: Count
    window_start: Count
    sums: tuple[Finite, Finite, Finite]
    best: Best | None
    unimproved: Count = 0
    validation_due: bool = False
    rate_factor: Finite = 1.0
    rollbacks: Count = 0
    measured: tuple[Finite, Finite] | None = None

    def validated(self, found: Metrics, by_loss: bool = False) -> State:
        """The state after a validation at this step, which may become the best one."""
        best = self.best

        def rank(each: Metrics | Best) -> tuple[float, float]:
            return (-each.loss, each.accuracy) if by_loss else (each.accuracy, -each.loss)

        if best is None or rank(found) > rank(best):
            best = Best(self.step, found.accuracy, found.loss, found.measure)
            return replace(self, best=best, unimproved=0, validation_due=False)
        return replace(self, unimproved=self.unimproved + 1, validation_due=False)

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether the last ``patience`` validations brought no improvement."""
        return patience is not None and self.unimproved >= patience

    def ends_early(self, train: TrainConfig) -> bool:
        """Whether training is over before its last step: without improvement, or at its goal."""
        return self.out_of_patience(train.patience) or self.reached(train.goal)

    def reached(self, goal: GoalConfig | None) -> bool:
        """Whether the last measurement reaches the goal."""
        if goal is None or self.measured is None:
            return False
        accuracy, loss = self.measured
        wanted = goal.r2 if goal.accuracy is None else goal.accuracy
        enough = wanted is None or accuracy >= wanted
        return enough and (goal.loss is None or loss <= goal.loss)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "best": self.best.to_json() if self.best else None}


START = State(0, 0, (0.0, 0.0, 0.0), None)
