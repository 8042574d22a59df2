"""The folder of a compression: ``compress.json``, which says what is compressed, how, and what its
stages gave; a lock; and what the stages and the file at the end are written to.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Len, MaxLen

from ...common.errors import CheckpointError
from ...common.files import atomic_write, make_folder, read_regular
from ...common.locks import Lock, lock
from ...common.targets import MEASURES
from ...common.typed_json import Count, Finite, Name, from_json
from ..records.group import deciding
from ..records.runs import AUTO, COMPRESSION, GROUP, LOCK, run_of_checkpoint

if TYPE_CHECKING:
    from ...configs.schema.stages import CompressConfig
    from ..inference.evaluate import Evaluation
    from ..inference.trained import Trained

_LONGEST_RECORD, _LONGEST_PATH = 1 << 20, 1 << 16


@dataclass(frozen=True)
class Measured:
    """What the validation samples, or those of the test set, gave."""

    part: str
    accuracy: Finite
    loss: Finite
    count: Count
    measure: str = "accuracy"
    """What the accuracy is: "r2" of numbers."""

    @classmethod
    def of(cls, found: Evaluation) -> Measured:
        measure = MEASURES[found.kind]
        return cls(found.part, found.accuracy, found.loss, found.count, measure)


@dataclass(frozen=True)
class StageResult:
    """What a stage ended with, and how well it does.

    ``kept``: the weights that are not 0, as a share of those of the network before the first stage.
    """

    name: Name
    checkpoint: Annotated[str, MaxLen(_LONGEST_PATH)]
    kept: Finite
    measured: tuple[Measured, ...] = ()
    seconds: Finite = 0.0

    @property
    def folder(self) -> str:
        """The name of the run's folder, wherever the compression was moved to."""
        return Path(self.checkpoint).parent.parent.name


@dataclass(frozen=True)
class Record:
    """What ``compress.json`` says. ``sha256``: of the network's checkpoint; config: of stages.

    ``float32_bytes``: of all numbers of the network before; 0 if it is not known. ``paper``: the
    figures that the config has to show beside, as JSON.
    """

    source: Annotated[str, MaxLen(_LONGEST_PATH)]
    sha256: Annotated[str, Len(64, 64)]
    config: str
    before: tuple[Measured, ...] = ()
    stages: tuple[StageResult, ...] = ()
    after: tuple[Measured, ...] = ()
    file: str = ""
    float32_bytes: Count = 0
    paper: str = ""

    def __post_init__(self) -> None:
        for name in (*([self.file] if self.file else []), *(each.folder for each in self.stages)):
            if name in ("", "..") or "\0" in name or Path(name).name != name:
                raise ValueError(f"{name!r} is not the name of a file or folder in it")

    def to_json(self) -> bytes:
        return (json.dumps(asdict(self), indent=1, allow_nan=False) + "\n").encode()


@dataclass
class Place:
    """The folder of a compression, locked until ``close``."""

    folder: Path
    record: Record
    held: Lock | None = field(repr=False, default=None)

    def write(self, record: Record) -> None:
        """Raises CheckpointError."""
        self.record = record
        try:
            atomic_write(self.folder / COMPRESSION, record.to_json())
        except OSError as error:
            raise unwritable(self.folder / COMPRESSION, error) from None

    def close(self) -> None:
        if self.held is not None:
            self.held.release()
            self.held = None


def config_text(config: CompressConfig) -> str:
    """What decides the result of the stages, to compare it with that of a resumed compression."""
    said = config.model_dump()
    said.pop("paper", None)
    return json.dumps(said, sort_keys=True)


def name_of(trained: Trained) -> str:
    """The name of a network's run, with that of its group; of a file elsewhere, its config's."""
    run = run_of_checkpoint(trained.path)
    if run is None:
        return trained.config.name
    run = run.resolve()
    return f"{run.parent.name}-{run.name}" if (run.parent / GROUP).is_file() else run.name


def open_place(
    runs_dir: Path, trained: Trained, config: CompressConfig, resume: str | None
) -> Place:
    """A new place, or the one to go on with; AUTO: the latest of the name, if there is one.

    Raises CheckpointError, LockedError.
    """
    name = config.name or f"{name_of(trained)}-compressed"
    given = nullcontext(None if resume is None else Path(resume))
    with deciding(runs_dir, name, is_compression) if resume == AUTO else given as folder:
        if folder is None:
            return create_place(runs_dir, name, trained, config)
        return find_place(folder, trained, config)


def create_place(runs_dir: Path, name: str, trained: Trained, config: CompressConfig) -> Place:
    """A new folder ``<name>``, ``<name>-2`` and so on. Raises CheckpointError, LockedError."""
    checkpoint = trained.checkpoint
    size = 4 * sum(array.size for array in checkpoint.learned().values())
    said = str(checkpoint.path.absolute()), checkpoint.sha256, config_text(config)
    paper = "" if config.paper is None else config.paper.model_dump_json()
    record = Record(*said, float32_bytes=size, paper=paper)
    number = 1
    try:
        make_folder(runs_dir)
        while True:
            folder = runs_dir / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir()
                break
            except FileExistsError:
                number += 1
        place = Place(folder, record, lock(folder / LOCK))
    except OSError as error:
        raise unwritable(Path(error.filename or runs_dir), error) from None
    place.write(record)
    return place


def find_place(folder: Path, trained: Trained, config: CompressConfig) -> Place:
    """The folder of a compression to go on with.

    Raises CheckpointError if it is of another network or of other stages; LockedError.
    """
    record = read_record(folder)
    if record.sha256 != trained.checkpoint.sha256:
        raise CheckpointError(
            f"{folder}: compresses another network: {record.source}; name it with --checkpoint, or "
            "begin anew without --resume"
        )
    if record.config != config_text(config):
        raise CheckpointError(
            f"{folder}: was begun with other stages; put them back, or begin anew without --resume"
        )
    try:
        return Place(folder, record, lock(folder / LOCK))
    except OSError as error:
        raise unwritable(folder / LOCK, error) from None


def is_compression(folder: Path) -> bool:
    """Whether a folder is that of a compression."""
    return (folder / COMPRESSION).is_file()


def list_compressions(runs_dir: Path) -> list[str]:
    """The names of all compressions of a folder, in alphabetical order; [] if it is unreadable."""
    try:
        return sorted(path.name for path in runs_dir.iterdir() if is_compression(path))
    except OSError:
        return []


def read_record(folder: Path) -> Record:
    """What a folder's compress.json says. Raises CheckpointError."""
    path = folder / COMPRESSION
    try:
        return from_json(read_regular(path, _LONGEST_RECORD), Record)
    except (FileNotFoundError, NotADirectoryError):
        known = ", ".join(list_compressions(folder.parent)) or "none"
        raise CheckpointError(
            f"{folder}: is not the folder of a compression: it has no {COMPRESSION}; in "
            f"{folder.parent} there are: {known}"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged: {error}") from None


def unwritable(path: Path, error: OSError) -> CheckpointError:
    """What to say of a file of a compression that cannot be written."""
    return CheckpointError(
        f"{path}: cannot be written: {error.strerror}; free some space, or choose another folder "
        "with --runs-dir, then go on with --resume"
    )
