"""``dnnstack race``: a record's recipe with many seeds, and whether its claim holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import console, options

if TYPE_CHECKING:
    from ..backends.select import Device

_MISSED = 3


@click.command(
    short_help="Test the claim of a record.",
    epilog=options.examples(
        "dnnstack race mnist-fast --device cuda --set run.precision=bf16",
        "dnnstack race --verify runs/race-mnist-fast/mnist-fast-seeds.json",
    ),
)
@click.argument(
    "name",
    type=click.Choice(["cifar10-airbench-muon", "cifar10-fast", "mnist-fast"]),
    required=False,
)
@click.option("--seeds", type=click.IntRange(min=2), default=25, help="Runs; default: 25.")
@click.option(
    "--verify",
    type=options.Named(),
    metavar="FILE",
    help="Instead, compute mean and p of a stored result anew, and the digests of its files.",
)
@options.overrides
@options.device("run.device of the config")
@options.data_dir
@options.runs_dir("runs")
@options.json_output("one JSON object")
def race(
    name: str | None, seeds: int, verify: Path | None, overrides: tuple[str, ...],
    device: Device | None, threads: int | None, data_dir: Path | None, offline: bool,
    runs_dir: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Train a record's config with many seeds, and test whether its mean accuracy is as claimed.

    Every network is evaluated on the test set after its last step. A t test says how probable such
    a mean is if the true one is the target; the claim holds below 0.01. The result is stored in
    runs/race-NAME, with the SHA-256 of all files of the runs. The exit status is 3 if the claim
    does not hold; with --verify, 1 if something is not as stored. The rules: dnnstack help records.
    """
    from ..fitting import changed
    from ..racing import raced, verified

    if (name is None) == (verify is None):
        raise click.UsageError("name a record, or a file with --verify")
    if verify is not None:
        found, wrong = verified(verify)
    elif name is not None:
        changes, folder = changed(overrides, device, threads, None), runs_dir or Path("runs")
        found, file = raced(name, seeds, changes, folder, data_dir, offline, console.note)
        wrong = []
    console.show(found, as_json, found.as_text, indent=1)
    for text in wrong:
        console.error(f"{verify}: {text}")
    if verify is None:
        console.note(f"stored in {file}")
    return 1 if wrong else 0 if found.holds else _MISSED
