"""Races: a packaged recipe with many seeds, and whether its mean accuracy is what it claims."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Annotated, Any

from annotated_types import Interval, MaxLen, MinLen

from .classifier import Classifier
from .common.errors import TrainingError, UsageError
from .common.files import sha256_file
from .common.printable import paragraph
from .common.records import dataclass
from .common.typed_json import Finite, Name
from .fitting import changed, read_config
from .grouping import trained
from .many.statistics import report_group
from .reports.callbacks import Told
from .several import Call
from .training.fitting import open_device
from .training.inference.intervals import above, probability_text
from .training.inference.trained import Trained
from .training.records.formats.record import read_typed, write_record
from .training.records.formats.store import FOLDER, best_checkpoint
from .training.records.group import read_group
from .training.records.runs import LONGEST_CONFIG

RECORDS = {"cifar10-airbench-muon": 0.94, "cifar10-fast": 0.94, "mnist-fast": 0.99}
"""The packaged configs that race, with the mean accuracy on the test set that each claims."""
LEVEL = 0.01
Accuracy = Annotated[float, Interval(ge=0, le=1)]


@dataclass(frozen=True)
class Race:
    """What anyone can verify of a race: ``files`` has the SHA-256 of each, by its path from here.

    ``p``: see ``above``. ``seconds``: of training, by the log of each run.
    """

    name: Name
    target: Accuracy
    config: Annotated[str, MaxLen(LONGEST_CONFIG)]
    seeds: tuple[Name, ...]
    accuracies: Annotated[tuple[Accuracy, ...], MinLen(2)]
    seconds: Annotated[tuple[Finite, ...], MinLen(2)]
    mean: Finite
    p: Finite
    versions: dict[Name, Name]
    files: dict[Name, Name]

    @property
    def holds(self) -> bool:
        """Whether the claim does: p is less than 0.01."""
        return self.p < LEVEL

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "holds": self.holds}

    def as_text(self) -> str:
        spread, verdict = stdev(self.accuracies), "" if self.holds else "not "
        low, high = min(self.seconds), max(self.seconds)
        return paragraph(
            [
                f"{self.name}: {self.mean:.3%} on average, deviation {spread:.3%}, "
                f"{len(self.seeds)} seeds",
                f"more than {self.target:.1%}: {verdict}shown, p {probability_text(self.p)}",
                f"seconds of training: {median(self.seconds):.4g} ({low:.4g} to {high:.4g})",
            ]
        )


def raced(
    name: str,
    count: int,
    changes: Sequence[str],
    runs_dir: Path,
    data_dir: Path | None,
    offline: bool,
    say: Callable[[str], None],
) -> tuple[Race, Path]:
    """Train a record's config with so many seeds, and test its claim on the test set.

    changes: as of ``--set``. Returns the result, and the file beside the runs that it was stored
    in. Raises DnnstackError, and KeyboardInterrupt after Ctrl-C.
    """
    if count < 2:
        raise UsageError(f"seeds: expected at least 2, for the spread of a mean (got {count})")
    folder, config = runs_dir / f"race-{name}", f"{name}.yaml"
    own, where = changed(changes, None, None, folder), None if data_dir is None else str(data_dir)
    planned = ("seeds", count, False)
    loaded = read_config(config, own)
    if not loaded.packaged:
        raise UsageError(f"{loaded.path}: is not the record's config; race in another folder")
    call = Call(config, own, planned, data_dir=where, offline=offline)
    path = trained(call, say, lambda: Told((), say, say))
    report = report_group(path)
    if report.finished < count:
        raise TrainingError(f"{path}: not every seed finished its training, so there is no result")
    backend = open_device(loaded, False, True, say)
    accuracies, versions = [], dict[str, str]()
    for run in report.runs:
        last = Trained.of(best_checkpoint(path / run / FOLDER))
        versions = dict(last.checkpoint.provenance.versions)
        with Classifier(last, backend, say) as model:
            accuracies.append(model.evaluate(data_dir=data_dir, offline=offline).accuracy)
    files = sorted(each for each in path.rglob("*") if each.is_file() and each.name != "lock")
    found = Race(
        name,
        RECORDS[name],
        read_group(path).config,
        tuple(report.runs),
        tuple(accuracies),
        tuple(run.seconds for run in report.runs.values()),
        fmean(accuracies),
        above(accuracies, RECORDS[name]),
        versions,
        {str(each.relative_to(folder)): sha256_file(each) for each in files},
    )
    file = f"{path.name}.json"
    write_record(folder, file, json.dumps(found.to_json(), indent=1).encode())
    return found, folder / file


def verified(path: Path) -> tuple[Race, list[str]]:
    """A stored race, and what of it is not so: mean, p, digests. Raises CheckpointError."""
    found = read_typed(path, LONGEST_CONFIG, Race)
    wrong = []
    if found.target != RECORDS.get(found.name):
        wrong.append(f"target: {found.target} is not what {found.name} claims")
    if not len(found.seeds) == len(found.accuracies) == len(found.seconds):
        wrong.append("seeds: as many accuracies and seconds are needed")
    exact = {"mean": fmean(found.accuracies), "p": above(found.accuracies, found.target)}
    for key, value in exact.items():
        if not math.isclose(getattr(found, key), value, rel_tol=1e-9):
            wrong.append(f"{key}: {getattr(found, key)} should be {value}")
    for name, digest in found.files.items():
        file = path.parent / name
        inside = not os.path.isabs(name) and ".." not in Path(name).parts
        if not (inside and os.path.isfile(file) and sha256_file(file) == digest):
            wrong.append(f"{name}: is not the file that was stored")
    return found, wrong
