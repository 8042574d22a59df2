"""The stages of a compression: each is a training in a run folder of its own, then the file.

The folder of a compression holds ``compress.json``, which says what is compressed, how, and what
its stages gave; a run folder for each stage; and at the end the file. A stage that is in
``compress.json`` is done; another one is begun, or resumed as any training is. So a compression
that was killed goes on where its last checkpoint was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from annotated_types import Len, MaxLen

from ...backends.base import Backend
from ...common.errors import CheckpointError, ConfigError
from ...common.files import atomic_write, make_folder, read_regular
from ...common.locks import Lock, lock
from ...common.typed_json import Count, Finite, Name, from_json
from ...configs import RunConfig
from ...configs.schema.init_from import InitFromConfig
from ...datasets import Downloads
from ..assemble import build_network
from ..evaluate import Evaluation, Part, evaluate, load_part
from ..listener import Listener
from ..records.checkpoint import Checkpoint
from ..records.resume import Resume, open_resume
from ..records.runs import GROUP, is_run, run_of_checkpoint
from ..records.store import FOLDER as CHECKPOINTS
from ..records.store import newest_checkpoint
from ..records.trained import Trained
from ..trainer import train
from .file import SUFFIX, Compressed, read_compressed, save_compressed
from .filters import smaller_arrays, smaller_config
from .quantization import check_names, quantized_checkpoint

if TYPE_CHECKING:
    from ...configs.schema.stages import CompressConfig

RECORD, LOCK = "compress.json", "lock"
_LONGEST_RECORD, _LONGEST_PATH = 1 << 20, 1 << 16


@dataclass(frozen=True)
class Measured:
    """What the validation samples, or those of the test set, gave."""

    part: str
    accuracy: Finite
    loss: Finite
    count: Count

    @classmethod
    def of(cls, found: Evaluation) -> Measured:
        return cls(found.part, found.accuracy, found.loss, found.count)


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

    def to_json(self) -> bytes:
        table = {**vars(self), "before": [vars(each) for each in self.before]}
        table["after"] = [vars(each) for each in self.after]
        table["stages"] = [
            {**vars(each), "measured": [vars(one) for one in each.measured]} for each in self.stages
        ]
        return (json.dumps(table, indent=1, allow_nan=False) + "\n").encode()


@dataclass(frozen=True)
class Result:
    """A compression: its folder, what it recorded, and the file unless it was interrupted."""

    folder: Path
    record: Record
    compressed: Compressed | None


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
            atomic_write(self.folder / RECORD, record.to_json())
        except OSError as error:
            raise _unwritable(self.folder / RECORD, error) from None

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
        raise _unwritable(Path(error.filename or runs_dir), error) from None
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
        raise _unwritable(folder / LOCK, error) from None


def is_compression(folder: Path) -> bool:
    """Whether a folder is that of a compression."""
    return (folder / RECORD).is_file()


def list_compressions(runs_dir: Path) -> list[str]:
    """The names of all compressions of a folder, in alphabetical order.

    None if it cannot be read.
    """
    try:
        return sorted(path.name for path in runs_dir.iterdir() if is_compression(path))
    except OSError:
        return []


def read_record(folder: Path) -> Record:
    """What a folder's compress.json says. Raises CheckpointError."""
    path = folder / RECORD
    try:
        return from_json(read_regular(path, _LONGEST_RECORD), Record)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: is damaged: {error}") from None


def stage_configs(trained: Trained, config: CompressConfig, folder: Path) -> list[RunConfig]:
    """The config of each stage's training, but for the weights that it begins with.

    Raises ConfigError for a stage that does not fit the network.
    """
    found = []
    now = trained.config.model_copy(update={"freeze": None, "init_from": None})
    for number, stage in enumerate(config.trainings, 1):
        given = {key: value for key, value in stage.options().items() if value is not None}
        shares = given.pop("filters", None)
        kind = next((key for key in ("share", "prune") if key in given), "train")
        kind = kind if shares is None else "filters"
        run = now.run.model_copy(update={"dir": str(folder)})
        before, now = now, now.model_copy(update={**given, "name": f"{number}-{kind}", "run": run})
        try:
            if shares is not None:
                network = build_network(before, trained.data, trained.path)
                now = smaller_config(now, network, shares)
            build_network(now, trained.data)
        except ConfigError as error:
            raise error.after(f"stages.{number - 1}: ") from None
        found.append(now)
    if config.quantize is not None:
        try:
            check_names(build_network(now, trained.data, trained.path), config.quantize)
        except ConfigError as error:
            raise error.after(f"stages.{len(found)}: ") from None
    return found


def compress(
    trained: Trained,
    config: CompressConfig,
    place: Place,
    backend: Backend,
    data_root: Path,
    *,
    listener: Callable[[str], AbstractContextManager[Listener]],
    stop_requested: Callable[[], bool] = lambda: False,
    downloads: Downloads | None = None,
    parts: tuple[Part, ...] = ("validation", "test"),
) -> Result:
    """Do the stages that are not done yet, and write the file.

    ``listener`` gives that of a stage by its name; ``parts``: what is measured before and after, of
    which validation also after every stage. Raises what ``train`` and ``evaluate`` raise.
    """

    def measured(checkpoint: Checkpoint, of: tuple[Part, ...]) -> tuple[Measured, ...]:
        network = Trained.of(checkpoint)
        found = []
        for part in of:
            data = network.config.data
            if part == "validation" and not data.validation and data.fold is None:
                continue
            images, index = load_part(network, part, data_root, downloads=downloads)
            found.append(Measured.of(evaluate(network, backend, images, index, part)))
        return tuple(found)

    configs = stage_configs(trained, config, place.folder)
    if not place.record.before:
        place.write(replace(place.record, before=measured(trained.checkpoint, parts)))
    last = trained.checkpoint
    whole = sum(array.size for array in last.learned().values())
    for number, each in enumerate(configs):
        done = place.record.stages
        if number < len(done):
            # It may have been stopped just before this.
            _drop_cut(place.folder / each.name)
            last = _end_of(place.folder / done[number].folder)
            continue
        folder = place.folder / each.name
        shares = config.stages[number].filters
        source = _named(last) if shares is None else _cut(last, shares, folder)
        config_now = each.model_copy(update={"init_from": InitFromConfig(source=source)})
        resumed = _resumed(folder)
        with listener(each.name) as heard:
            ended = train(
                config_now,
                backend,
                data_root,
                resume=resumed,
                listener=heard,
                stop_requested=stop_requested,
                downloads=downloads,
            )
        if ended.state == "interrupted":
            return Result(place.folder, place.record, None)
        # Another one, if the folder of this name could not be locked.
        last = _end_of(ended.run)
        found = StageResult(
            each.name,
            str(last.path),
            kept_share(last, whole),
            measured(last, ("validation",)),
            ended.training_seconds,
        )
        place.write(replace(place.record, stages=(*done, found)))
        _drop_cut(folder)
    if config.quantize is not None:
        network = Trained.of(last)
        training = load_part(network, "train", data_root, downloads=downloads)
        last = quantized_checkpoint(network, backend, *training, config.quantize)
    path = place.folder / f"{name_of(trained)}{SUFFIX}"
    widths = () if config.gap_bits is None else (config.gap_bits,)
    save_compressed(last, path, widths)
    compressed = read_compressed(path)
    after = measured(compressed.checkpoint, parts)
    place.write(replace(place.record, after=after, file=path.name))
    return Result(place.folder, place.record, compressed)


def kept_share(checkpoint: Checkpoint, whole: int) -> float:
    """The learned numbers that are not 0, as a share of the ``whole`` network's."""
    arrays = checkpoint.learned().values()
    return sum(int((array != 0).sum()) for array in arrays) / max(whole, 1)


def _end_of(run: Path) -> Checkpoint:
    """What a stage ended with. Raises CheckpointError."""
    try:
        return newest_checkpoint(run / CHECKPOINTS)
    except CheckpointError as error:
        # Its first and last lines are about the choice of a checkpoint.
        reason = str(error.args[1] if len(error.args) > 1 else error).strip()
        raise CheckpointError(
            f"{run}: what this stage ended with cannot be used ({reason}); go on with --resume, or "
            "begin anew without it"
        ) from None


def _cut(checkpoint: Checkpoint, shares: Mapping[str, float], folder: Path) -> str:
    """A file beside the folder, with the filters that are left; its path."""
    from safetensors.numpy import save

    path = _cut_file(folder)
    network = Trained.of(checkpoint).network
    try:
        atomic_write(path, save(smaller_arrays(network, shares, checkpoint.learned())))
    except OSError as error:
        raise _unwritable(path, error) from None
    return str(path.absolute())


def _cut_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.safetensors")


def _drop_cut(folder: Path) -> None:
    """Remove what ``_cut`` wrote, which is in the stage's own checkpoint by now."""
    with suppress(OSError):
        _cut_file(folder).unlink()


def _named(checkpoint: Checkpoint) -> str:
    return str(checkpoint.path.absolute())


def _resumed(folder: Path) -> Resume | None:
    """The training of a stage that was begun; None if it has no folder yet."""
    return open_resume(folder, lambda text: None) if is_run(folder) else None


def _unwritable(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(
        f"{path}: cannot be written: {error.strerror}; free some space, or choose another folder "
        "with --runs-dir, then go on with --resume"
    )
