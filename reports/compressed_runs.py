"""The compressed networks of a folder of runs, each with the run that it was made of."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..common.errors import CheckpointError
from ..common.records import dataclass
from ..training.compressed.place import Measured, Record, list_compressions, read_record
from ..training.records.formats.checkpoint import read_manifest
from ..training.records.formats.state import shown
from ..training.records.formats.store import FOLDER


@dataclass(frozen=True)
class CompressedRun:
    """A compression by its folder; ``file`` and its ``bytes`` are None until it is finished."""

    folder: Path
    record: Record
    file: Path | None
    bytes: int | None

    @property
    def source(self) -> Path:
        """The folder of the run whose checkpoint was compressed."""
        return Path(self.record.source).parent.parent

    @property
    def measured(self) -> tuple[Measured, ...]:
        """What was measured of the file, else of the last stage that is done."""
        stages = self.record.stages
        return self.record.after or (stages[-1].measured if stages else ())

    @property
    def times(self) -> float | None:
        """How many times smaller the file is than all numbers as float32."""
        if not self.bytes or not self.record.float32_bytes:
            return None
        return self.record.float32_bytes / self.bytes

    def to_json(self) -> dict[str, Any]:
        return {
            "path": str(self.folder),
            "file": None if self.file is None else str(self.file),
            "bytes": self.bytes,
            "times": self.times,
            "accuracy": {each.part: each.accuracy for each in self.measured},
        }

    def __str__(self) -> str:
        parts = [f"compressed  {self.file or self.folder}"]
        if self.file is None:
            done = len(self.record.stages)
            parts.append(f"not finished, {done} {'stage is' if done == 1 else 'stages are'} done")
        elif self.bytes is None:
            parts.append("which is gone")
        else:
            parts.append(f"{self.bytes:,} bytes")
            parts += [] if self.times is None else [f"{self.times:.1f} times smaller"]
        parts += [f"{shown(each.measure, each.accuracy)} on {each.part}" for each in self.measured]
        return ", ".join(parts)


def compressed_runs(
    runs_dir: Path, complain: Callable[[str], None] = lambda text: None
) -> list[CompressedRun]:
    """All compressions of a folder, by name; ``complain`` is told of those that cannot be read."""
    found = []
    for name in list_compressions(runs_dir):
        folder = runs_dir / name
        try:
            record = read_record(folder)
        except CheckpointError as error:
            complain(str(error))
            continue
        file = folder / record.file if record.file else None
        found.append(CompressedRun(folder, record, file, None if file is None else _size(file)))
    return found


def of_run(run: Path, compressed: Sequence[CompressedRun]) -> list[CompressedRun]:
    """Those that were made of this run, also if both were copied or moved together."""
    return [each for each in compressed if _was_made_of(run, each)]


def of_no_run(runs: Sequence[Path], compressed: Sequence[CompressedRun]) -> list[CompressedRun]:
    """Those of networks elsewhere, and of runs that are gone."""
    return [each for each in compressed if not any(_was_made_of(run, each) for run in runs)]


def _was_made_of(run: Path, one: CompressedRun) -> bool:
    source = one.source
    if os.path.realpath(source) == os.path.realpath(run):
        return True
    if source.name != run.name or one.folder.parent != run.parent:
        return False
    try:
        marks = read_manifest((run / FOLDER / Path(one.record.source).name).with_suffix(".json"))
    except CheckpointError:
        # The run may have gone on, and have deleted this checkpoint.
        return not os.path.exists(source)
    return any(mark.sha256 == one.record.sha256 for mark in marks)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except OSError:
        return None
