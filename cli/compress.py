"""``dnnstack compress``: prune a trained network, let weights share values, write a small file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..training.signals import ENDING, StopSignals
from . import completion, console, options, plugins
from .asked import quoted
from .drawing import draw
from .sensitivity import show_sensitivity

if TYPE_CHECKING:
    from ..configs import RunConfig
    from ..training.listener import Listener


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
@options.data_dir
@options.runs_dir("runs")
def compress(
    run: str | None,
    checkpoint: Path | None,
    reference: str | None,
    overrides: tuple[str, ...],
    resume: Path | None,
    same_samples: bool,
    sensitivity: bool,
    plugin: tuple[Path, ...],
    as_json: bool,
    device: str | None,
    threads: int | None,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
    runs_dir: Path | None,
) -> int:
    """Make a trained network small: prune weights, let the rest share values, code both.

    The stages of the config are trainings, each in a folder of its own in runs/NAME-compressed,
    each from where the one before it ended; the last one may instead quantize to 8 bits. The file
    at the end, NAME.dnnz, is taken by eval, predict and weights like a checkpoint. A compression
    that was stopped goes on with --resume.
    """
    from ..backends.select import open_backend
    from ..common.errors import Interrupted
    from ..configs.stages import load_stages, packaged_stages
    from ..reports.compress_plots import draw_plots
    from ..reports.compress_report import CompressedReport
    from ..training.compressed import pipeline
    from ..training.compressed import place as places
    from ..training.inference.trained import Trained, data_root_of, find_trained
    from ..training.records.runs import AUTO
    from ..training.records.starting import deciding
    from . import downloading, progress

    if run is not None and checkpoint is not None:
        raise click.UsageError("RUN and --checkpoint cannot be used together")
    if sensitivity and (reference is not None or overrides or resume is not None):
        raise click.UsageError("--sensitivity needs no stages: leave out --config, --set, --resume")
    if not sensitivity and reference is None:
        raise click.UsageError(
            f"Missing option '--config', a file with stages; {', '.join(packaged_stages())} ship "
            "with the package"
        )
    if as_json:
        # Standard output is for the object alone.
        console.set_loudness(quiet=True)
    plugins.load(plugin)
    loaded = None if reference is None else load_stages(reference, overrides)
    runs = runs_dir or Path("runs")
    auto = resume == Path(AUTO)
    if resume is not None and not auto and run is None and checkpoint is None:
        checkpoint = Path(places.read_record(resume).source)
    trained = find_trained(run, checkpoint, runs, console.note)
    machine = trained.config.run
    backend = open_backend(
        device or machine.device,  # type: ignore[arg-type]
        threads or machine.threads,
        console.note,
        not no_graph,
    )
    root = data_root_of(trained, data_dir, console.note)
    if loaded is None:
        show_sensitivity(trained, backend, root, as_json, offline)
        return 0
    planned = pipeline.stage_configs(trained, loaded.config, runs)
    name = loaded.config.name or f"{places.name_of(trained)}-compressed"
    with deciding(runs, name, places.is_compression) if auto else nullcontext(resume) as folder:
        if folder is not None:
            place = places.find_place(folder, trained, loaded.config)
        else:
            place = places.create_place(runs, name, trained, loaded.config)
    count = len(loaded.config.trainings)
    lengths = [*map(_length, planned), *["quantize"] * (loaded.config.quantize is not None)]
    progress.remark(f"stages      {', '.join(lengths)}")

    def listener(name: str) -> AbstractContextManager[Listener]:
        progress.remark(f"stage       {name} of {count}")
        return closing(progress.listener())

    with StopSignals("" if console.is_quiet() else ENDING) as stop:
        try:
            done = pipeline.compress(
                trained,
                loaded.config,
                place,
                backend,
                root,
                listener=listener,
                stop_requested=stop.requested,
                downloads=downloading.policy(offline),
                same_samples=same_samples,
                notice=console.note,
            )
        except Interrupted:
            done = pipeline.Result(place.folder, place.record, None)
        finally:
            place.close()
    if done.compressed is None:
        assert reference is not None
        words = [
            *([] if run is None else [run]),
            *("--config", reference),
            *(word for change in overrides for word in ("--set", change)),
            *plugins.words(plugin),
            *["--offline"] * offline,
            *["--no-graph"] * no_graph,
            *["--same-samples"] * same_samples,
        ]
        where = {
            "--checkpoint": checkpoint,
            "--device": device,
            "--threads": threads,
            "--data-dir": data_dir,
            "--runs-dir": runs_dir,
            "--resume": done.folder,
        }
        progress.say(f"resume with {_command(words, where)}")
        return stop.exit_status
    network = Trained.of(done.compressed.checkpoint).network
    report = CompressedReport(
        done.compressed, network, done.record, loaded.config.paper, trained.network
    )
    if as_json:
        console.say(json.dumps(report.to_json(), indent=1))
    else:
        console.tell(report.as_text(console.width()))
        console.say(f"written     {console.clean((str(done.compressed.checkpoint.path),))}")
    before, after = (each.checkpoint.learned() for each in (trained, done.compressed))
    draw(done.folder, as_json, lambda: draw_plots(before, after, done.folder), margin=12)
    return stop.exit_status


def _command(words: Sequence[str], options: Mapping[str, object]) -> str:
    """The command line of these words and of those options that have a value."""
    given = (word for key, value in options.items() if value for word in (key, str(value)))
    return " ".join(map(quoted, ["dnnstack", "compress", *words, *given]))


def _length(stage: RunConfig) -> str:
    """Name and length of a stage's training."""
    steps = stage.train.max_steps
    count, unit = (stage.train.epochs, "epoch") if steps is None else (steps, "step")
    return f"{stage.name} {count:g} {unit}{'' if count == 1 else 's'}"
