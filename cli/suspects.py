"""``dnnstack suspects``: samples whose label is probably wrong, duplicates and outliers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import completion, console, ensembles, options, plugins


@click.command(
    short_help="Find samples that are probably wrong.",
    epilog=options.examples("dnnstack suspects lenet-folds --apply labels.csv"),
)
@click.argument("runs", metavar="[RUN]...", nargs=-1, shell_complete=completion.members)
@options.runs_dir("runs")
@options.plugin
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test"]),
    help="Default: test; folds: train.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, help="Most for each reason; default: 100."
)
@click.option("--csv", type=options.Named(), metavar="FILE", help="Write the list here, too.")
@click.option(
    "--apply", type=options.Named(), metavar="FILE", help="Write corrected labels, for data.labels."
)
@options.json_output("one JSON object")
@options.device("auto")
@options.no_graph
@options.data_dir
def suspects(
    runs: tuple[str, ...], runs_dir: Path | None, plugin: tuple[Path, ...], csv: Path | None,
    apply: Path | None, as_json: bool, device: Any, threads: int | None, no_graph: bool, **how: Any,
) -> None:  # fmt: skip
    """Find samples whose label is probably wrong, that are there twice, or unlike all others.

    RUN is a run or a checkpoint file; several, or a group of runs, answer together. List and
    pictures are in suspects-SPLIT in the folder of the run or group. Samples that were trained on
    are not judged: train with --folds 5, and name that group. With --apply, the answers to samples
    whose reason is their label are the corrected labels.
    """
    from ..common.errors import UsageError
    from ..many.group import group_at
    from ..reports.suspects import draw_suspects, write_labels, write_list
    from ..training.records.runs import run_of_checkpoint

    plugins.load(plugin)
    group = group_at(runs[0], runs_dir or Path("runs")) if len(runs) == 1 else None
    several, one = (runs, None) if group or runs[1:] else ((), Path(runs[0]) if runs else None)
    model = ensembles.opened(several, None, None, None, one, runs_dir, device, threads, no_graph)
    found = model.suspects(**how)
    console.show(found, as_json, lambda: found.as_text(console.width()))
    if folder := group or (None if several else run_of_checkpoint(model.checkpoint)):
        place = folder / f"suspects-{found.result.part}"
        console.draw(place, as_json, lambda: draw_suspects(found, place))
    if csv is not None:
        write_list(csv, found.found)
    if apply is not None and not found.result.counts:
        raise UsageError("--apply: there are no labels of classes to correct")
    if apply is not None:
        console.note(f"{write_labels(apply, found)} corrected labels written to {apply}")
