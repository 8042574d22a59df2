"""``dnnstack summary``: a network as a table of layers, with its costs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import completion, console, options, plugins

if TYPE_CHECKING:
    from ..datasets import DatasetInfo
    from ..training.inference.trained import Trained


@click.command(
    short_help="Show a network as a table of layers.",
    epilog=options.examples(
        "dnnstack summary --config lenet.yaml",
        "dnnstack summary --config lenet.yaml --batch-size 256",
        "dnnstack summary --config lenet.yaml --json > summary.json",
        "dnnstack summary --checkpoint lenet",
        "dnnstack summary --checkpoint runs/lenet-compressed/lenet.dnnz",
    ),
)
@options.config(required=False)
@click.option(
    "--checkpoint",
    type=options.Named(),
    metavar="FILE|RUN",
    shell_complete=completion.sources,
    help="Show the network of this checkpoint, or of the best one of this run; of a compressed one "
    "(.dnnz) also what each array takes in the file.",
)
@options.runs_dir("runs")
@options.overrides
@options.plugin
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    metavar="N",
    help="Pictures in a training step; default: data.batch_size of the config.",
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Show what one of N processes that train together needs, and what it sends in a step.",
)
@options.json_output("one JSON object")
def summary(
    reference: str | None,
    checkpoint: Path | None,
    runs_dir: Path | None,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    batch_size: int | None,
    ranks: int,
    as_json: bool,
) -> None:
    """Show a network as a table: layers, parameters, operations, memory.

    For each layer: its output, its parameters, the millions of floating-point operations of its
    forward pass, and the memory of its weights and activations. Then totals, and the memory of a
    training step. Neither data nor a device is needed. The network is that of a config, or of a
    checkpoint.
    """
    from dataclasses import replace

    from ..configs import load_config, placed
    from ..reports.summary import summarize
    from ..reports.summary_text import as_text

    if checkpoint is not None:
        if reference is not None or overrides:
            raise click.UsageError("--checkpoint has a config: leave out --config and --set")
        plugins.load(plugin)
        _of_checkpoint(checkpoint, runs_dir or Path("runs"), batch_size, ranks, as_json)
        return
    if reference is None:
        ctx = click.get_current_context()
        config = next(each for each in ctx.command.params if each.name == "reference")
        raise click.MissingParameter(ctx=ctx, param=config)
    loaded = load_config(reference, overrides, plugins.opened(plugin))
    with placed(loaded):
        result = summarize(loaded.config, loaded.path, batch_size, ranks)
    console.show(
        result,
        as_json,
        lambda: as_text(replace(result, config=loaded.title), console.width()),
        indent=1,
    )


def _of_checkpoint(
    path: Path, runs_dir: Path, batch_size: int | None, ranks: int, as_json: bool
) -> None:
    """Show the network of a checkpoint; of a compressed one, the arrays of the file too."""
    import json

    from ..reports.compress_report import CompressedReport
    from ..reports.summary import summarize
    from ..reports.summary_text import as_text
    from ..training.inference.trained import Trained, find_trained
    from ..training.records.formats.dnnz import is_compressed, read_compressed

    found = read_compressed(path) if is_compressed(path) else None
    if found is None:
        trained = find_trained(None, path, runs_dir, console.note)
    else:
        trained = Trained.of(found.checkpoint)
    result = summarize(trained.config, trained.path, batch_size, ranks, _data_of(trained))
    report = None if found is None else CompressedReport(found, trained.network)
    if as_json:
        more = {} if report is None else {"compressed": report.to_json()}
        console.say(json.dumps({**result.to_json(), **more}, indent=1))
        return
    console.tell(as_text(result, console.width()))
    if report is not None:
        console.tell("")
        console.tell(report.as_text(console.width()))


def _data_of(trained: Trained) -> DatasetInfo:
    """The data set of the training, with its size if it is still there."""
    from ..common.errors import DnnstackError
    from ..training.assemble import describe_data
    from ..training.inference.trained import check_folders

    try:
        check_folders(trained.checkpoint, trained.config)
        found = describe_data(trained.config)
    except DnnstackError:
        return trained.data
    same = (found.shape, found.classes) == (trained.input_shape, trained.classes)
    return found if same else trained.data
