"""History: what a training in Python returns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..training.listener import EndState, Summary
from ..training.records.formats.run_log import CSV
from ..training.records.formats.state import Best, shown
from .plots import measure_of, read_metrics
from .training_text import one_epoch


@dataclass(frozen=True, repr=False)
class History:
    """How a training went.

    ``history`` has the names of Keras: the columns epoch, loss, accuracy and learning_rate have one
    entry for each line of the training's log, val_epoch, val_loss and val_accuracy one for each
    validation; of a resumed run, from its beginning. Of numbers, r2 and val_r2 stand in the place
    of the accuracies. ``state`` is "finished" or "interrupted".
    ``checkpoint`` is the last one; ``best`` the best validation, None without one. ``goal``:
    whether the config's goal was reached; None if it has none.
    """

    history: dict[str, list[float]]
    run: Path
    checkpoint: Path | None
    state: EndState
    step: int
    epoch: float
    best: Best | None
    goal: bool | None
    seconds: float

    def __repr__(self) -> str:
        best = ""
        if self.best is not None:
            best = f", best {shown(*self.best.figure)} on validation"
        return (
            f"<History of {str(self.run)!r}: {self.state} at step {self.step} (epoch "
            f"{one_epoch(self.epoch)}){best}, {self.seconds:.1f} s>"
        )

    @classmethod
    def of(cls, done: Summary) -> History:
        """The history of a training that ended in this way. Raises OSError, ValueError."""
        points = read_metrics(done.run / CSV)
        train, validation = points["train"], points["validation"]
        measure = measure_of(points)
        columns = {key: train[key] for key in ("epoch", "loss", measure, "learning_rate")}
        held = {f"val_{key}": validation[key] for key in ("epoch", "loss", measure)}
        return cls(
            history={**columns, **held},
            run=done.run,
            checkpoint=done.checkpoint,
            state=done.state,
            step=done.step,
            epoch=done.epoch,
            best=done.best,
            goal=done.goal,
            seconds=done.training_seconds + done.validation_seconds,
        )
