"""State: everything of a checkpoint but its arrays; where training stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ...backends.tuning import Tuning
from ...graph.graph import Shape
from ..metrics import Metrics
from ..preprocessing import Preprocessing

if TYPE_CHECKING:
    from ...configs.schema.run import GoalConfig


@dataclass(frozen=True)
class Best:
    """The best validation so far: highest accuracy, then lowest loss."""

    step: int
    accuracy: float
    loss: float


@dataclass(frozen=True)
class State:
    """What a checkpoint says beside its arrays.

    ``step`` counts updates done. ``sums`` are the running (loss, right answers, samples) since the
    log line of step ``window_start``. ``config`` is the effective YAML. ``unimproved`` counts the
    validations since ``best``; ``validation_due``: that of this step is still to come. The rates of
    the schedule are multiplied by ``rate_factor``, lowered at each of the ``rollbacks``.
    ``measured``: accuracy and loss as last compared with the goal. ``data_folder``: where the data
    sets lay.
    """

    step: int
    steps_per_epoch: int
    window_start: int
    sums: tuple[float, ...]
    best: Best | None
    config: str
    dataset: str
    input_shape: Shape
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    tuning: Tuning
    versions: Mapping[str, str]
    unimproved: int = 0
    validation_due: bool = False
    rate_factor: float = 1.0
    rollbacks: int = 0
    measured: tuple[float, float] | None = None
    data_folder: str = ""

    @property
    def epoch(self) -> float:
        """Passes over the training set."""
        return self.step / self.steps_per_epoch

    def validated(self, found: Metrics) -> State:
        """The state after a validation at this step; it is the best where it beats all before."""
        best = self.best
        if best is None or (found.accuracy, -found.loss) > (best.accuracy, -best.loss):
            best = Best(self.step, found.accuracy, found.loss)
            return replace(self, best=best, unimproved=0, validation_due=False)
        return replace(self, unimproved=self.unimproved + 1, validation_due=False)

    def out_of_patience(self, patience: int | None) -> bool:
        """Whether so many validations in a row brought no improvement."""
        return patience is not None and self.unimproved >= patience

    def reached(self, goal: GoalConfig | None) -> bool:
        """Whether the last measurement reaches the goal."""
        if goal is None or self.measured is None:
            return False
        accuracy, loss = self.measured
        enough = goal.accuracy is None or accuracy >= goal.accuracy
        return enough and (goal.loss is None or loss <= goal.loss)

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "best": vars(self.best) if self.best else None,
            "preprocessing": vars(self.preprocessing),
            "tuning": self.tuning.to_json(),
            "versions": dict(self.versions),
        }

    @classmethod
    def from_json(cls, table: Mapping[str, Any]) -> State:
        """Raises KeyError, TypeError or ValueError where the table is not one of ours."""
        table = {
            field.name: table[field.name]
            for field in fields(cls)
            if field.name in table or field.default is MISSING
        }
        scaling = table["preprocessing"]
        return cls(
            **{
                **table,
                "sums": tuple(float(value) for value in table["sums"]),
                "best": Best(**table["best"]) if table["best"] else None,
                "measured": _pair(table.get("measured")),
                "input_shape": tuple(int(side) for side in table["input_shape"]),
                "classes": tuple(str(name) for name in table["classes"]),
                "data_folder": str(table.get("data_folder", "")),
                "preprocessing": Preprocessing(tuple(scaling["scale"]), tuple(scaling["shift"])),
                "tuning": Tuning.from_json(table["tuning"]),
            }
        )


def _pair(value: Any) -> tuple[float, float] | None:
    """Accuracy and loss, or None."""
    if value is None:
        return None
    accuracy, loss = value
    return float(accuracy), float(loss)
