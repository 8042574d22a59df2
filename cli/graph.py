"""``dnnstack graph``: a network, or its training step, as boxes and edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import console, options
from .summary import chosen, network


@click.command(epilog=options.examples("dnnstack graph --config resnet18.yaml -o resnet18.svg"))
@network
@click.option("--operations", is_flag=True, help="Show the operations of a step, not the layers.")
@click.option("-o", "--output", type=options.Named(), metavar="FILE", help="FILE.svg or FILE.dot.")
@options.json_output("one JSON object")
@options.device("run.device of the config")
def graph(operations: bool, output: Path | None, as_json: bool, **given: Any) -> None:
    """Show a network as a graph, with shapes on its edges.

    A box for each layer, with its output, parameters and floating-point operations for one sample;
    branches join in the box of their block. With --operations, a box for each operation of forward
    and backward as the device runs it; a fused one names its parts. Without --output it is text.
    """
    from ..backends.select import open_backend
    from ..reports.contact_sheet import write
    from ..reports.network_graph import layer_graph, operation_graph

    if output is not None and output.suffix.lower() not in (".svg", ".dot"):
        raise click.UsageError(f"{output}: choose a name that ends in .svg or .dot")
    device, threads = given.pop("device"), given.pop("threads")
    with chosen(**given) as (config, path, title, trained):
        if operations:
            backend = open_backend(device or config.run.device, threads or config.run.threads)
            found = operation_graph(config, path, title, backend)
        else:
            found = layer_graph(config, path, title, trained.data if trained else None)
    if output is not None:
        write(
            (found.as_dot() if output.suffix.lower() == ".dot" else found.as_svg()).encode(), output
        )
    if output is None or as_json:
        console.show(found, as_json, found.as_text)
