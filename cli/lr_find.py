"""``dnnstack lr-find``: at which learning rates the loss falls, and at which it diverges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import console, options
from .step import begun, opened

_RATE = click.FloatRange(min=0, min_open=True)


@click.command(
    "lr-find",
    short_help="Find a learning rate to begin with.",
    epilog=options.examples("dnnstack lr-find --config lenet.yaml -o rates.png"),
)
@options.config()
@options.overrides
@options.plugin
@click.option("--low", type=_RATE, default=1e-7, metavar="RATE", help="The first; default: 1e-7.")
@click.option("--high", type=_RATE, default=10.0, metavar="RATE", help="The last; default: 10.")
@click.option(
    "--steps", type=click.IntRange(2, 10_000), default=100, help="Rates to try; default: 100."
)
@click.option(
    "-o", "--output", type=options.Named(), metavar="FILE", help="Draw the curve: PNG, SVG or PDF."
)
@opened
def lr_find(
    reference: str, low: float, high: float, steps: int, output: Path | None, as_json: bool,
    **how: Any,
) -> None:  # fmt: skip
    """Train for a few steps while the learning rate grows, and suggest one.

    The weights are fresh. The rate grows from --low to --high by the same factor at every step;
    the test ends where the loss is four times its best. The suggestion lies two thirds down the
    longest fall of the smoothed loss. Nothing is kept: train with --set optimizer.lr=RATE.
    """
    from ..reports.contact_sheet import check_png, write
    from ..reports.rate_range import find_rate

    if output is not None:
        check_png(output, more=(".svg", ".pdf"))
    found = find_rate(*begun(reference, **how), low, high, steps)
    console.show(found, as_json, found.as_text, indent=1)
    if output is not None:
        write(found.picture(output.suffix[1:].lower()), output)
