"""How a run ended, read from its log."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.records import dataclass
from ..training.records.formats.run_log import LOG, Line, log_lines


@dataclass(frozen=True)
class Outcome:
    """The end of a run, as far as it has come.

    R2 stands in the place of accuracies where targets are numbers. ``accuracy``, ``loss``,
    ``correct``, ``count``: of the last validation, ``best_accuracy``: of the best one; None without
    one. ``goal``: whether the config's goal was reached; None without one. ``seconds``: of training
    over all processes, without validation.
    """

    finished: bool = False
    step: int = 0
    accuracy: float | None = None
    loss: float | None = None
    correct: int | None = None
    count: int | None = None
    best_accuracy: float | None = None
    goal: bool | None = None
    seconds: float = 0.0
    epochs: float = 0.0
    validations: tuple[tuple[int, float, float], ...] = ()
    """Step, accuracy and loss of each."""
    others: tuple[Mapping[str, float], ...] = ()
    """What else each has measured, by the names of ``common.targets.METRICS``."""
    measure: str = "accuracy"
    spread: float | None = None
    """The variance of the numbers of all folds."""

    def reports(self, name: str) -> list[tuple[int, float]]:
        """Of each validation that has measured it, the step and the value of a metric or loss."""
        own = ({self.measure: accuracy, "loss": loss} for _, accuracy, loss in self.validations)
        every = zip(self.validations, own, self.others, strict=True)
        found = ((each[0], {**others, **known}.get(name)) for each, known, others in every)
        return [(step, value) for step, value in found if value is not None]

    def to_json(self) -> dict[str, Any]:
        left_out = ("validations", "others", "spread")
        return {key: value for key, value in vars(self).items() if key not in left_out}


def outcome(run: Path) -> Outcome:
    """The outcome of the run in this folder; damaged lines of its log are left out.

    Raises CheckpointError if the log cannot be read.
    """
    last = best = Line("", 0)
    ended: Line | None = None
    step, epochs, seconds, spent = 0, 0.0, 0.0, 0.0
    validations: dict[int, tuple[int, float, float]] = {}
    others: dict[int, Mapping[str, float]] = {}
    for line in filter(None, log_lines(run / LOG, Line)):
        step = line.step
        epochs = epochs if line.epoch is None else line.epoch
        if line.event in ("start", "resume"):
            seconds, spent, ended = seconds + spent, 0.0, None
        elif line.event == "train":
            spent = spent if line.seconds is None else line.seconds
        elif line.event == "validation":
            last, best = line, line if line.best else best
            if line.measured is not None and line.loss is not None:
                validations[step] = (step, line.measured, line.loss)
                others[step] = line.others()
        elif line.event == "end":
            ended = line
            spent = spent if line.training_seconds is None else line.training_seconds
    return Outcome(
        finished=ended is not None and ended.state == "finished",
        step=step,
        accuracy=last.measured,
        loss=last.loss,
        correct=last.correct,
        count=last.count,
        best_accuracy=best.measured,
        goal=None if ended is None else ended.goal,
        seconds=seconds + spent,
        epochs=epochs,
        validations=tuple(validations.values()),
        others=tuple(others.values()),
        measure=last.measure,
        spread=last.spread,
    )
