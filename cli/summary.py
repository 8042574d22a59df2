"""``dnnstack summary``: a network as a table of layers, with its costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import completion, console, options, plugins

if TYPE_CHECKING:
    from ..backends.select import Device
    from ..configs import RunConfig
    from ..datasets import DatasetInfo
    from ..training.inference.trained import Trained


network = options.all_of(
    options.config(required=False),
    click.option(
        "--checkpoint",
        type=options.Named(),
        metavar="FILE|RUN",
        shell_complete=completion.sources,
        help="Show the network of this checkpoint, or of the best one of this run; of a compressed "
        "one (.dnnz) also what each array takes in the file.",
    ),
    options.runs_dir("runs"),
    options.overrides,
    options.plugin,
)


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
@network
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
@click.option("--device", type=click.Choice(["cuda"]), help="Also show its calls on a GPU.")
@options.card
@options.json_output("one JSON object")
def summary(
    batch_size: int | None,
    ranks: int,
    device: Device | None,
    card: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Show a network as a table: layers, parameters, operations, memory.

    For each layer: its output, its parameters, the millions of floating-point operations of its
    forward pass, and the memory of its weights and activations. Then totals, and the memory of a
    training step. Neither data nor a device is needed. The network is that of a config, or of a
    checkpoint. With --card, also what each layer becomes on a GPU, which need not be there either.
    """
    import json
    from dataclasses import replace

    from ..backends.cuda.cards import USUAL
    from ..reports.compress_report import CompressedReport
    from ..reports.foreseen import by_layer_text, foresee
    from ..reports.summary import summarize
    from ..reports.summary_text import as_text
    from ..training.records.formats.dnnz import is_compressed, read_compressed
    from ..training.timing import with_batch

    report, told, card = None, None, card or (device and USUAL)
    if card and ranks > 1:
        raise click.UsageError("--card is of one GPU: leave out --ranks")
    with chosen(**given) as (config, path, title, trained):
        result = summarize(config, path, batch_size, ranks, _data_of(trained) if trained else None)
        if card:
            told = foresee(with_batch(config, batch_size), path, card, console.note)
    if trained is not None and is_compressed(path):
        report = CompressedReport(read_compressed(path), trained.network)
    if as_json:
        more = {} if report is None else {"compressed": report.to_json()}
        more |= {} if told is None else {"explained": told.to_json()}
        console.say(json.dumps({**result.to_json(), **more}, indent=1))
        return
    if told is not None:
        console.tell(by_layer_text(told, console.width()))
    console.tell(as_text(replace(result, config=title), console.width()))
    if report is not None:
        console.tell("")
        console.tell(report.as_text(console.width()))


@contextmanager
def chosen(
    reference: str | None,
    checkpoint: Path | None,
    runs_dir: Path | None,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
) -> Iterator[tuple[RunConfig, Path, str, Trained | None]]:
    """The config that is named, its file and title, and the trained network of a checkpoint."""
    from ..configs import load_config, placed
    from ..training.inference.trained import find_trained

    if checkpoint is not None:
        if reference is not None or overrides:
            raise click.UsageError("--checkpoint has a config: leave out --config and --set")
        plugins.load(plugin)
        trained = find_trained(None, checkpoint, runs_dir or Path("runs"), console.note)
        yield trained.config, trained.path, str(trained.path), trained
        return
    if reference is None:
        ctx = click.get_current_context()
        config = next(each for each in ctx.command.params if each.name == "reference")
        raise click.MissingParameter(ctx=ctx, param=config)
    loaded = load_config(reference, overrides, plugins.opened(plugin))
    with placed(loaded):
        yield loaded.config, loaded.path, loaded.title, None


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
