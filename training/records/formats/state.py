"""How far a training has come: metrics, snapshots, and what a checkpoint says beside its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....common.targets import LOWER_IS_BETTER, r2_of
from ....common.typed_json import Count, Finite
from .plateau import Plateau

if TYPE_CHECKING:
    from ....configs.schema.run import RunConfig, TrainConfig
    from ....configs.schema.training import GoalConfig


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
    and R2 takes the place of the accuracy: 1 - correct / count / spread. ``others``: of all answers
    to the validation samples, see ``training.metrics``, of which ``by`` says what is best.
    """

    loss: float
    correct: float
    count: int
    spread: float | None = None
    by: str = ""
    others: Mapping[str, float | None] | None = None

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
        return share if self.spread is None else r2_of(share, self.spread)

    @property
    def value(self) -> float | None:
        """That of ``by``."""
        return (self.others or {}).get(self.by)


def shown(measure: str, value: float | None) -> str:
    """A measure as a person reads it: "97.12%", "R2 0.4312", "rmse 0.5213"."""
    name = {"accuracy": "", "r2": "R2 "}.get(measure, f"{measure} ")
    return f"{name}{figure(measure, value)}"


def figure(name: str, value: float | None) -> str:
    """A value of a metric without its name: "97.12%", "0.4312", "-" of one that is not defined."""
    if value is None:
        return "-"
    return (
        f"{value:.2%}"
        if name in _PERCENT
        else f"{value:.4g}"
        if abs(value) >= 10
        else f"{value:.4f}"
    )


_PERCENT = frozenset(("accuracy", "precision", "recall", "f1", "calibration_error"))


@dataclass(frozen=True)
class Best:
    """The best validation so far: highest accuracy, then lowest loss, or by the loss alone; or by
    the ``value`` of another metric, ``by``."""

    step: Count
    accuracy: Finite
    loss: Finite
    measure: str = "accuracy"
    by: str = ""
    value: Finite | None = None

    @property
    def figure(self) -> tuple[str, float | None]:
        """The name and the value of what it is best by, or of the accuracy."""
        return (self.by, self.value) if self.by else (self.measure, self.accuracy)

    def to_json(self) -> dict[str, Any]:
        """Without the name of the accuracy, as before there were others."""
        plain = {"measure": "accuracy", "by": "", "value": None}
        return {k: v for k, v in vars(self).items() if k not in plain or v != plain[k]}


@dataclass(frozen=True)
class State:
    """Where training stands after ``step`` updates.

    ``sums`` are the running (loss, right answers, samples) since the log line of step
    ``window_start``. ``unimproved`` counts the validations since ``best``; ``validation_due``: that
    of this step is still to come. The rates of the schedule are multiplied by ``rate_factor``,
    lowered at each of the ``rollbacks``, and by the factor of ``plateau``. ``measured``: accuracy
    and loss as last compared with the goal.
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
    plateau: Plateau | None = None

    @property
    def factor(self) -> float:
        """What the rates of the schedule are multiplied by."""
        return self.rate_factor * (1.0 if self.plateau is None else self.plateau.factor)

    def validated(self, found: Metrics, by_loss: bool = False) -> State:
        """The state after a validation at this step, which may become the best one."""
        best, by = self.best, found.by

        def rank(each: Metrics | Best) -> tuple[float, float]:
            if by:
                sign = -1 if by in LOWER_IS_BETTER else 1
                return (-math.inf if each.value is None else sign * each.value, -each.loss)
            return (-each.loss, each.accuracy) if by_loss else (each.accuracy, -each.loss)

        if best is None or best.by != by or rank(found) > rank(best):
            best = Best(self.step, found.accuracy, found.loss, found.measure, by, found.value)
            return replace(self, best=best, unimproved=0, validation_due=False)
        return replace(self, unimproved=self.unimproved + 1, validation_due=False)

    def slowed(self, found: Metrics, config: RunConfig) -> State:
        """The state after a validation, whose rates fall if the config says so of a plateau."""
        wanted, by = config.train.reduce_on_plateau, found.by or found.measure
        if wanted is None:
            return self
        value = found.value if found.by else found.accuracy
        if "loss" in (wanted.by, config.checkpoint.best_by):
            by, value = "loss", found.loss
        if value is not None and by in LOWER_IS_BETTER:
            value = -value
        plateau = (self.plateau or Plateau()).after(by, value, wanted, config.optimizer.lr)
        return replace(self, plateau=plateau)

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
        found = {**vars(self), "best": self.best.to_json() if self.best else None}
        plateau = found.pop("plateau")
        return found if plateau is None else {**found, "plateau": vars(plateau)}


START = State(0, 0, (0.0, 0.0, 0.0), None)
