"""``dnnstack summary``: a network as a table of layers, with its costs."""

from __future__ import annotations

from pathlib import Path

import click

from . import console, options, plugins


@click.command(
    short_help="Show a network as a table of layers.",
    epilog=options.examples(
        "dnnstack summary --config lenet.yaml",
        "dnnstack summary --config lenet.yaml --batch-size 256",
        "dnnstack summary --config lenet.yaml --json > summary.json",
    ),
)
@options.config()
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
    reference: str,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    batch_size: int | None,
    ranks: int,
    as_json: bool,
) -> None:
    """Show a network as a table: layers, parameters, operations, memory.

    For each layer: its output, its parameters, the millions of floating-point operations of its
    forward pass, and the memory of its weights and activations. Then totals, and the memory of a
    training step. Neither data nor a device is needed.
    """
    import json
    from dataclasses import replace

    from ..configs import load_config, placed
    from ..reports.summary import summarize
    from ..reports.summary_text import as_text

    loaded = load_config(reference, overrides, plugins.opened(plugin))
    with placed(loaded):
        result = summarize(loaded.config, loaded.path, batch_size, ranks)
    if as_json:
        console.say(json.dumps(result.to_json(), indent=1))
    else:
        console.tell(as_text(replace(result, config=loaded.title), console.width()))
