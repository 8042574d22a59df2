"""``dnnstack check``: whether a network can be trained, test by test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import completion, console, options
from .step import begun, opened


@click.command(
    short_help="Test whether a network can be trained.",
    epilog=options.examples("dnnstack check --config lenet.yaml", "dnnstack check lenet --json"),
)
@click.argument("run", required=False, shell_complete=completion.runs)
@options.config(required=False)
@options.runs_dir("runs")
@options.overrides
@options.plugin
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="The most of the training on one batch.",
)
@click.option(
    "--picture",
    type=options.Named(),
    metavar="FILE.png",
    help="What the network sees; default: check.png in the run's folder, or NAME-check.png here.",
)
@opened
def check(
    run: str | None, reference: str | None, runs_dir: Path | None, overrides: tuple[str, ...],
    steps: int, picture: Path | None, as_json: bool, **how: Any,
) -> int:  # fmt: skip
    """Test whether a network can be trained: for each test a verdict, figures and what to do.

    The network is that of a config with its first weights, or of RUN with its best ones. On at
    most 16 samples that come first: the inputs; gradients against central differences; each
    operation of the device against the reference; whether samples depend on each other; the loss
    of the first step; dead units and saturation; updates relative to weights; whether one batch is
    overfitted, and better than samples of zeros; and a step repeated from a saved state. The exit
    status is 1 if something is wrong.
    """
    from ..checking import of_run
    from ..reports.check import check_network
    from ..reports.contact_sheet import check_png

    if picture is not None:
        check_png(picture)
    found, more = of_run(reference, run, runs_dir or Path("runs"))
    title, setup, backend = begun(found, (*overrides, *more), **how)
    result = check_network(title, setup, backend, steps)
    console.show(result, as_json, result.as_text, indent=1)
    own = Path(found).with_name("check.png") if run else Path(f"{setup.config.name}-check.png")
    place = picture or own
    console.draw(place.parent, as_json, lambda: result.draw(place))
    return int(result.wrong)
