"""``dnnstack compress``: prune a trained network, let weights share values, write a small file."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..common.records import dataclass
from ..training.signals import ENDING, StopSignals
from . import completion, console, options, plugins
from .asked import Asked, line

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..configs import RunConfig
    from ..configs.schema.stages import CompressConfig
    from ..training.compressed.pipeline import Result
    from ..training.compressed.place import Record
    from ..training.inference.trained import Trained
    from ..training.listener import Listener
    from ..training.records.formats.dnnz import Compressed


@click.command(
    short_help="Make a trained network small: prune, share, code.",
    epilog=options.examples(
        "dnnstack compress --config lenet.yaml",
        "dnnstack compress --config int8.yaml --device cpu",
        "dnnstack compress --sensitivity",
        "dnnstack compress lenet-2 --config lenet.yaml --set stages.0.train.epochs=1",
        "dnnstack compress --config lenet.yaml --resume runs/lenet-compressed",
        "dnnstack eval --checkpoint runs/lenet-compressed/lenet.dnnz",
    ),
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=completion.runs)
@click.option(
    "--checkpoint",
    type=options.Named(),
    metavar="FILE",
    help="Compress the network of this checkpoint; default: the best one of RUN, or of the latest "
    "run.",
)
@click.option(
    "--config",
    "-c",
    "reference",
    metavar="FILE",
    shell_complete=completion.stages,
    help="YAML file with the stages; a bare name is looked up in this folder, then among those of "
    "the package: int8.yaml, lenet-300-100.yaml, lenet.yaml.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY.PATH=VALUE",
    shell_complete=completion.stage_keys,
    help="Change one key of the stages, as in stages.0.train.epochs=2; repeatable.",
)
@click.option(
    "--resume",
    type=options.Named(),
    metavar="FOLDER",
    help="Go on with the compression in this folder; with auto, with the latest one of this name, "
    "or begin it.",
)
@options.same_samples
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Compress nothing: measure how accurate the network is on validation with each layer "
    "pruned to several shares, and cut to 1 to 8 bits.",
)
@options.plugin
@options.json_output("one JSON object at the end")
@options.device("run.device of the network's config")
@options.no_graph
@options.plots_format
@options.data_dir
@options.runs_dir("runs")
def compress(*, resume: Path | None, **given: Any) -> int:
    """Make a trained network small: prune weights, let the rest share values, code both.

    The stages of the config are trainings, each in a folder of its own in runs/NAME-compressed,
    each from where the one before it ended; the last one may instead quantize to 8 bits. The file
    at the end, NAME.dnnz, is taken by eval, predict and weights like a checkpoint. A compression
    that was stopped goes on with --resume.
    """
    from ..backends.select import open_backend
    from ..configs.stages import load_stages
    from ..training.compressed.place import read_record
    from ..training.inference.trained import data_root_of, find_trained
    from ..training.records.runs import AUTO
    from . import progress

    asked = _Asked(**given, resume=None if resume is None else str(resume))
    asked.check()
    if asked.as_json:
        # Standard output is for the object alone.
        console.set_loudness(quiet=True)
    plugins.load(asked.plugin)
    loaded = None if asked.sensitivity else load_stages(asked.reference, asked.overrides)
    unnamed = asked.run is None and asked.checkpoint is None
    if unnamed and resume is not None and asked.resume != AUTO:
        asked = replace(asked, checkpoint=Path(read_record(resume).source))
    trained = find_trained(asked.run, asked.checkpoint, asked.runs, console.note)
    machine = trained.config.run
    backend = open_backend(
        asked.device or machine.device,  # type: ignore[arg-type]
        asked.threads or machine.threads,
        console.note,
        not asked.no_graph,
    )
    root = data_root_of(trained, asked.data_dir, console.note)
    if loaded is None:
        _show_sensitivity(trained, backend, root, asked.as_json, asked.offline)
        return 0
    with StopSignals("" if console.is_quiet() else ENDING) as stop:
        done = _done(asked, trained, loaded.config, backend, root, stop)
    if done.compressed is None:
        progress.say(asked.goes_on(done.folder))
    else:
        _tell(asked, trained, loaded.config, done.record, done.compressed)
    return stop.exit_status


@dataclass(frozen=True)
class _Asked(Asked):
    run: str | None
    checkpoint: Path | None
    sensitivity: bool
    as_json: bool

    @property
    def runs(self) -> Path:
        return self.runs_dir or Path("runs")

    def check(self) -> None:
        """Refuse options that do not go together."""
        from ..configs.stages import packaged_stages

        if self.run is not None and self.checkpoint is not None:
            raise click.UsageError("RUN and --checkpoint cannot be used together")
        if not self.sensitivity and self.reference is None:
            raise click.UsageError(
                f"Missing option '--config', a file with stages; {', '.join(packaged_stages())} "
                "ship with the package"
            )
        staged = self.reference is not None or self.overrides or self.resume is not None
        if self.sensitivity and staged:
            raise click.UsageError(
                "--sensitivity needs no stages: leave out --config, --set, --resume"
            )

    def goes_on(self, folder: Path) -> str:
        """The command that goes on."""
        where = {
            "--checkpoint": self.checkpoint,
            "--device": self.device,
            "--threads": self.threads,
            "--runs-dir": self.runs_dir,
            "--resume": folder,
        }
        return line(
            "resume with",
            "compress",
            *([] if self.run is None else [self.run]),
            *("--config", self.reference),
            *(word for change in self.overrides for word in ("--set", change)),
            *plugins.words(self.plugin),
            *self.words(),
            *(word for key, value in where.items() if value for word in (key, str(value))),
        )


def _done(
    asked: _Asked,
    trained: Trained,
    config: CompressConfig,
    backend: Backend,
    root: Path,
    stop: StopSignals,
) -> Result:
    """Do the stages; the result has no file if they were interrupted."""
    from ..common.errors import Interrupted
    from ..training.compressed.pipeline import Result, compress, stage_configs
    from ..training.compressed.place import open_place
    from . import downloading, progress

    planned = stage_configs(trained, config, asked.runs)
    place = open_place(asked.runs, trained, config, asked.resume)
    lengths = [*map(_length, planned), *["quantize"] * (config.quantize is not None)]
    progress.remark(f"stages      {', '.join(lengths)}")

    def listener(name: str) -> AbstractContextManager[Listener]:
        progress.remark(f"stage       {name} of {len(planned)}")
        return closing(progress.listener())

    with closing(place):
        try:
            return compress(
                trained,
                config,
                place,
                backend,
                root,
                listener=listener,
                stop_requested=stop.requested,
                downloads=downloading.policy(asked.offline),
                same_samples=asked.same_samples,
                notice=console.note,
            )
        except Interrupted:
            return Result(place.folder, place.record, None)


def _tell(
    asked: _Asked, trained: Trained, config: CompressConfig, record: Record, found: Compressed
) -> None:
    """What the compression brought, and its pictures."""
    from ..reports.compress_plots import draw_plots
    from ..reports.compress_report import CompressedReport
    from ..training.inference.trained import Trained

    network = Trained.of(found.checkpoint).network
    report = CompressedReport(found, network, record, config.paper, trained.network)
    if asked.as_json:
        console.say(json.dumps(report.to_json(), indent=1))
    else:
        console.tell(report.as_text(console.width()))
        console.say(f"written     {console.clean((str(found.checkpoint.path),))}")
    before, after = (each.checkpoint.learned() for each in (trained, found))
    folder = found.checkpoint.path.parent
    console.draw(folder, asked.as_json, lambda: draw_plots(before, after, folder), margin=12)


def _show_sensitivity(
    trained: Trained, backend: Backend, root: Path, as_json: bool, offline: bool
) -> None:
    """Measure on the validation samples, write data and a picture to the run's folder, and print.

    The files are beside a checkpoint that is in no run. Raises DatasetError, CheckpointError.
    """
    from ..common.errors import DatasetError, explaining
    from ..common.printable import printable
    from ..reports import sensitivity_report
    from ..training.compressed.sensitivity import evaluations, measure
    from ..training.inference.parts import load_part
    from ..training.records.runs import run_of_checkpoint
    from . import downloading

    data = trained.config.data
    if not data.validation and data.fold is None:
        raise DatasetError(
            f"{trained.path}: was trained without validation samples (data.validation: 0), on "
            "which sensitivity is measured; train it with some"
        )
    downloads = downloading.policy(offline)
    images, index = load_part(trained, "validation", root, None, downloads, console.note)
    with console.bar(evaluations(trained), "evaluations") as advance:
        found = measure(trained, backend, images, index, advance)
    folder = run_of_checkpoint(trained.path) or trained.path.parent
    console.show(found, as_json, lambda: sensitivity_report.as_text(found))
    advice = "copy the checkpoint to another folder and name it with --checkpoint"
    with explaining(folder, "the curves cannot be written there", advice):
        written = sensitivity_report.write(found, folder)
    for path in written if not as_json else ():
        console.say(f"written     {printable(path)}")


def _length(stage: RunConfig) -> str:
    """Name and length of a stage's training."""
    steps = stage.train.max_steps
    count, unit = (stage.train.epochs, "epoch") if steps is None else (steps, "step")
    return f"{stage.name} {count:g} {unit}{'' if count == 1 else 's'}"
