"""History: what a training in Python returns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ..common.printable import html_table
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
    whether the config's goal was reached; None if it has none. ``seconds`` are those of steps,
    validation and saving together.
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
    validation_seconds: float = 0.0
    saving_seconds: float = 0.0

    def __repr__(self) -> str:
        best = ""
        if self.best is not None:
            best = f", best {shown(*self.best.figure)} on validation"
        return (
            f"<History of {str(self.run)!r}: {self.state} at step {self.step} (epoch "
            f"{one_epoch(self.epoch)}){best}, {self.seconds:.1f} s>"
        )

    @property
    def columns(self) -> dict[str, list[float]]:
        """The history as columns of one length, a row for each step: see ``columns_of``."""
        return columns_of(self.run)

    def table(self) -> list[dict[str, float]]:
        """The rows of ``columns``, which a data frame can be made of."""
        columns = self.columns
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def _repr_html_(self) -> str:
        return html_table(repr(self), self.table())

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
            seconds=done.training_seconds + done.validation_seconds + done.saving_seconds,
            validation_seconds=done.validation_seconds,
            saving_seconds=done.saving_seconds,
        )


def columns_of(run: Path) -> dict[str, list[float]]:
    """A run's metrics.csv, a row for each step, with NaN for what it lacks.

    Names are those of ``History.history``. Raises OSError, ValueError.
    """
    rows: dict[float, dict[str, float]] = {}
    for split, points in read_metrics(run / CSV).items():
        for values in zip(*points.values(), strict=True):
            found = dict(zip(points, values, strict=True))
            row = rows.setdefault(found["step"], {})
            for name, value in found.items():
                shared = split == "train" or name in ("step", "epoch", "learning_rate")
                row[name if shared else f"val_{name}"] = value
    names = dict.fromkeys(name for row in rows.values() for name in row)
    return {name: [rows[step].get(name, math.nan) for step in sorted(rows)] for name in names}
