"""How a run went, as its folder tells it: curves, stops, the best checkpoint, what repeats it."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..common.errors import CheckpointError
from ..common.records import dataclass
from ..training.inference.intervals import wilson
from ..training.records.formats.checkpoint import Checkpoint
from ..training.records.formats.run_log import LOG, Line, log_lines
from ..training.records.formats.state import shown
from ..training.records.formats.store import FOLDER, best_checkpoint
from ..training.records.runs import CONFIG
from .runs_report import RunReport, report_run
from .units import span_text

# Points of a curve: of more, every n-th is shown.
_MOST = 4000


@dataclass(frozen=True)
class Story:
    """A run with its best checkpoint, if it has one. ``accuracy``: the best on validation, with its
    95% confidence interval where samples are counted; ``command``: repeats the training, with the
    same bits on the same machine; ``curves``: what the page draws."""

    path: Path
    run: RunReport
    checkpoint: Checkpoint | None
    accuracy: str
    summary: str
    command: str
    curves: dict[str, Any]


def story(path: Path) -> Story:
    """The story of the run in this folder. Raises CheckpointError if its log cannot be read."""
    run, checkpoint = report_run(path), None
    with suppress(CheckpointError):
        checkpoint = best_checkpoint(path / FOLDER, is_live=lambda: run.state == "running")
    begun, best, last, before, spent = Line("", 0), Line("", 0), Line("", 0), 0.0, 0.0
    rows: dict[str, dict[int, list[Any]]] = {"train": {}, "validation": {}, "stops": {}}
    for line in filter(None, log_lines(path / LOG, Line)):
        if line.event in ("start", "resume"):
            begun, before, spent = line, before + spent, 0.0
        elif line.event == "train":
            spent = spent if line.seconds is None else line.seconds
        place = [line.step, line.epoch, before + spent]
        if line.event in ("train", "validation"):
            measured = [line.loss, line.measured, line.learning_rate]
            rows[line.event][line.step], last = place + measured, line
            best = line if line.best else best
        elif line.event in ("resume", "rollback") or line.early or line.state == "interrupted":
            text = "ended early" if line.early else line.state or line.event
            rows["stops"][line.step] = [*place, text]
    epochs = (last.epoch or 0.0) / max(last.step, 1)
    stops = [[step, step * epochs, *rest] for step, _, *rest in rows["stops"].values()]
    best_row = rows["validation"].get(best.step)
    curves: dict[str, Any] = {"name": path.name, "best": best_row, "stops": stops}
    for split in ("train", "validation"):
        own = sorted(rows[split].values())[:: -max(1, len(rows[split]) // _MOST)][::-1]
        names = ("step", "epoch", "seconds", "loss", run.measure, "learning_rate")
        curves[split] = {name: [row[n] for row in own] for n, name in enumerate(names)}
    accuracy = shown(run.measure, run.best_accuracy)
    if best.correct is not None and best.count:
        accuracy += f" ({span_text(wilson(best.correct, best.count))})"
    data = f" on {checkpoint.provenance.dataset}" if checkpoint else ""
    at = ", ".join(f"{name} {value}" for name, value in (run.versions or {}).items())
    summary = (
        f"{run.config or run.run}{data}: {run.state} at step {run.step}, epoch "
        f"{run.step * epochs:.4g}; best on validation {accuracy}; {run.seconds:.1f} s of training, "
        f"{run.validation_seconds:.1f} of validation, {run.saving_seconds:.1f} of saving; {at}"
    )
    words = ["dnnstack", "train", "--config", str(path / CONFIG)]
    if checkpoint and checkpoint.provenance.data_folder:
        words += ["--data-dir", checkpoint.provenance.data_folder]
    if begun.backend:
        words += ["--device", "cpu" if begun.backend == "onednn" else begun.backend]
    if begun.ranks:
        words += ["--ranks", str(begun.ranks)]
    elif threads := (begun.versions or {}).get("threads"):
        words += ["--threads", threads]
    return Story(path, run, checkpoint, accuracy, summary, shlex.join(words), curves)
