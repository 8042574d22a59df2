"""The stages of a compression: each is a training in a run folder of its own, then the file.

A stage that is in the folder's ``compress.json`` is done; another one is begun, or resumed as any
training is. So a compression that was killed goes on where its last checkpoint was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...backends.base import Backend
from ...common.errors import CheckpointError, ConfigError, explaining, only_warned
from ...common.files import atomic_write, remove_temporaries
from ...common.records import dataclass
from ...configs import RunConfig, effective_yaml
from ...configs.schema.init_from import InitFromConfig
from ...datasets import Downloads
from ..assemble import build_network
from ..inference.evaluate import Part, evaluate
from ..inference.parts import load_part
from ..inference.trained import Trained
from ..listener import Listener
from ..records.formats.checkpoint import Checkpoint
from ..records.formats.dnnz import SUFFIX, Compressed, read_compressed, save_compressed
from ..records.formats.record import write_record
from ..records.formats.store import FOLDER as CHECKPOINTS
from ..records.formats.store import newest_checkpoint
from ..records.resume import Resume, open_member
from ..records.runs import CONFIG
from ..trainer import train
from .filters import smaller_arrays, smaller_config
from .place import ADVICE, Measured, Place, Record, StageResult, name_of
from .quantization import check_names, quantized_checkpoint

if TYPE_CHECKING:
    from ...configs.schema.stages import CompressConfig


@dataclass(frozen=True)
class Result:
    """A compression: its folder, what it recorded, and the file unless it was interrupted."""

    folder: Path
    record: Record
    compressed: Compressed | None


def stage_configs(trained: Trained, config: CompressConfig, folder: Path) -> list[RunConfig]:
    """The config of each stage's training, but for the weights that it begins with.

    Raises ConfigError for a stage that does not fit the network.
    """
    found = []
    now = trained.config.model_copy(update={"freeze": None, "init_from": None})
    # A stage divides the pictures as the network's training did, also where that is not said.
    data = now.data.model_copy(update={"stratified": bool(now.data.stratified)})
    now = now.model_copy(update={"data": data})
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
    same_samples: bool = False,
    notice: Callable[[str], object] = lambda text: None,
) -> Result:
    """Do the stages that are not done yet, and write the file.

    ``listener`` gives that of a stage by its name; ``parts``: what is measured before and after, of
    which validation also after every stage. same_samples: that of ``train``; notice: that of
    ``load_part``. Raises what ``train`` and ``evaluate`` raise.
    """

    def measured(checkpoint: Checkpoint, of: tuple[Part, ...]) -> tuple[Measured, ...]:
        network = Trained.of(checkpoint)
        found = []
        for part in of:
            data = network.config.data
            if part == "validation" and not data.validation and data.fold is None:
                continue
            # The network before may say where its pictures are; the file may be in any folder.
            images, index = load_part(trained, part, data_root, None, downloads, notice)
            found.append(Measured.of(evaluate(network, backend, images, index, part)))
        return tuple(found)

    remove_temporaries(place.folder)
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
        source = str(last.path.absolute()) if shares is None else _cut(last, shares, folder)
        config_now = each.model_copy(update={"init_from": InitFromConfig(source=source)})
        warnings: list[str] = []
        resumed = _resumed(folder, config_now, only_warned(warnings.append))
        with listener(each.name) as heard:
            for text in warnings:
                heard.notice(text)
            ended = train(
                config_now,
                backend,
                data_root,
                resume=resumed,
                listener=heard,
                stop_requested=stop_requested,
                downloads=downloads,
                # They are this very network's, whose last layer is never to begin anew.
                doubts=False,
                same_samples=same_samples,
                lineage=last,
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
        training = load_part(trained, "train", data_root, None, downloads, notice)
        last = quantized_checkpoint(Trained.of(last), backend, *training, config.quantize)
    path = place.folder / f"{name_of(trained)}{SUFFIX}"
    widths = () if config.gap_bits is None else (config.gap_bits,)
    save_compressed(_standalone(last, trained), path, widths)
    compressed = read_compressed(path)
    after = measured(compressed.checkpoint, parts)
    place.write(replace(place.record, after=after, file=path.name))
    return Result(place.folder, place.record, compressed)


def _standalone(last: Checkpoint, trained: Trained) -> Checkpoint:
    """The last stage's end as a network of its own: its config names neither folders nor stages."""
    config = Trained.of(last).config
    run = config.run.model_copy(update={"dir": trained.config.run.dir})
    own = {"name": name_of(trained), "init_from": None, "run": run}
    text = effective_yaml(config.model_copy(update=own))
    return replace(last, provenance=replace(last.provenance, config=text))


def kept_share(checkpoint: Checkpoint, whole: int) -> float:
    """The learned numbers that are not 0, as a share of the ``whole`` network's."""
    arrays = checkpoint.learned().values()
    return sum(int((array != 0).sum()) for array in arrays) / max(whole, 1)


def _end_of(run: Path) -> Checkpoint:
    """What a stage ended with: an older checkpoint is not what was measured. Raises
    CheckpointError."""
    passed_over: list[str] = []
    try:
        found = newest_checkpoint(run / CHECKPOINTS, only_warned(passed_over.append))
    except CheckpointError as error:
        # Its first and last lines are about the choice of a checkpoint.
        reason = str(error.args[1] if len(error.args) > 1 else error).strip()
    else:
        if not passed_over:
            return found
        reason = passed_over[0].rpartition("; using ")[0]
    raise CheckpointError(
        f"{run}: what this stage ended with cannot be used ({reason}); begin anew without --resume"
    )


def _cut(checkpoint: Checkpoint, shares: Mapping[str, float], folder: Path) -> str:
    """A file beside the folder, with the filters that are left; its path."""
    from safetensors.numpy import save

    path = _cut_file(folder)
    network = Trained.of(checkpoint).network
    with explaining(path, "cannot be written", ADVICE):
        atomic_write(path, save(smaller_arrays(network, shares, checkpoint.learned())))
    return str(path.absolute())


def _cut_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.safetensors")


def _drop_cut(folder: Path) -> None:
    """Remove what ``_cut`` wrote, which is in the stage's own checkpoint by now."""
    with suppress(OSError):
        _cut_file(folder).unlink()


def _resumed(folder: Path, config: RunConfig, notice: Callable[[str], None]) -> Resume | None:
    """The training of a stage that was begun; None if it has no folder yet.

    ``config``: of this training; ``notice``: see ``open_member``. Raises CheckpointError,
    LockedError.
    """
    found = open_member(folder, notice)
    if found is not None and found.checkpoint is None and found.run is not None:
        try:
            # The stage before may have been moved, with this one, since this one was begun.
            write_record(found.run.path, CONFIG, effective_yaml(config).encode())
        except BaseException:
            found.close()
            raise
    return found
