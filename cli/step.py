"""``dnnstack step``: the numbers of one training step, forward and backward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import console, options, plugins

opened = options.all_of(
    options.json_output("one JSON object"),
    options.device("run.device of the config"),
    options.data_dir,
)


@click.command(
    short_help="Show every number of a training step.",
    epilog=options.examples(
        "dnnstack step --config toy-unroll.yaml",
        "dnnstack step --config lenet.yaml --sample 7 --save step.npz",
    ),
)
@options.config()
@options.overrides
@options.plugin
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    metavar="N",
    help="A batch of this sample of the training set alone; default: the first batch of training.",
)
@click.option(
    "--save",
    type=options.Named(),
    metavar="FILE.npz",
    help="Also write every tensor, whole, under the name that is printed.",
)
@opened
def step(reference: str, sample: int | None, save: Path | None, as_json: bool, **how: Any) -> None:
    """Show every tensor of one training step, with the formula and the library call behind it.

    The step is the first of the training, from its first weights, at the mean rate of its schedule.
    Operations are not fused, so that each result is there to see. What an operation reads is named
    as its formula names it. Of tensors of more than 128 numbers, mean, deviation and the first
    corner are shown.
    """
    from ..reports.step import take_step

    if save is not None and save.suffix != ".npz":
        raise click.UsageError(f"--save {save}: choose a name that ends in .npz")
    found = take_step(*begun(reference, **how), sample)
    console.show(found, as_json, found.as_text, indent=1)
    if save is not None:
        found.save(save)


def begun(
    reference: str, overrides: tuple[str, ...], plugin: tuple[Path, ...], device: Any,
    threads: int | None, data_dir: Path | None, offline: bool,
) -> tuple[str, Any, Any]:  # fmt: skip
    """See ``made_ready``."""
    from ..checking import made_ready
    from ..configs import load_config
    from ..fitting import changed
    from . import downloading

    changes = [*overrides, *changed((), device, threads, None)]
    loaded = load_config(reference, changes, plugins.opened(plugin))
    return made_ready(loaded, data_dir, downloading.policy(offline), console.note)
