"""``dnnstack bench``: how fast a config trains on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..common.machine_load import Others
from . import console, options, plugins

if TYPE_CHECKING:
    from ..backends.select import Device


def _sizes(ctx: click.Context, option: click.Parameter, text: str | None) -> list[int] | None:
    parts = [] if text is None else text.split(",")
    if not all(part.isdecimal() and int(part) for part in parts):
        wanted = "expected whole numbers of at least 1, such as 32,64,128"
        raise click.BadParameter(f"{wanted} (got '{text}')", ctx, option)
    return [*map(int, parts)] or None


@click.command(
    short_help="Time the training step of a config.",
    epilog=options.examples(
        "dnnstack bench --config lenet.yaml",
        "dnnstack bench --config lenet.yaml --batch-sizes 32,64,128 --compare torch",
        "dnnstack bench --config lenet.yaml --output before.json",
        "dnnstack bench --config lenet.yaml --baseline before.json",
    ),
)
@options.config()
@options.overrides
@options.plugin
@click.option(
    "--batch-sizes",
    "sizes",
    callback=_sizes,
    metavar="N,N...",
    help="Batch sizes to time; default: that of the config, half and double of it.",
)
@click.option(
    "--compare",
    type=click.Choice(["torch"]),
    help="Time PyTorch's step of the same network in turn with ours, also by torch.compile.",
)
@click.option(
    "--output", "-o", type=options.Named(), metavar="FILE", help="Store the figures as JSON."
)
@click.option(
    "--baseline",
    type=options.Named(),
    metavar="FILE",
    help="Say what has become slower than in this file of --output; the exit status is then 1.",
)
@options.json_output("one JSON object")
@options.device("run.device of the config")
def bench(
    reference: str, overrides: tuple[str, ...], plugin: tuple[Path, ...], sizes: list[int] | None,
    compare: str | None, output: Path | None, baseline: Path | None, as_json: bool,
    device: Device | None, threads: int | None,
) -> int:  # fmt: skip
    """Time a training step on this machine: forward, backward, update, and the whole step.

    On noise, at rates of zero: no data is read, and nothing is learned. Shown are medians and
    quartiles over several rounds, samples in a second, planned memory, and the share of the
    machine's limit, as ``explain --measure`` has it. With --compare, rounds of both alternate.
    """
    from ..common.errors import ConfigError, explaining
    from ..common.files import atomic_write
    from ..configs import load_config
    from ..exports.torch_step import torch_steps
    from ..fitting import changed
    from ..reports.bench import Bench
    from ..reports.bench import bench as timed
    from ..training.fitting import open_device
    from ..training.records.formats.record import read_typed

    before = None if baseline is None else read_typed(baseline, 1 << 20, Bench)
    changes = [*overrides, *changed((), device, threads, None)]
    loaded, others = load_config(reference, changes, plugins.opened(plugin)), Others()
    backend = open_device(loaded, False, True, console.note)
    found = timed(loaded, backend, sizes, torch_steps() if compare else None, console.note)
    if backend.waiting_threads and (remark := others.remark()):
        console.note(remark)
    slower = [] if before is None else found.slower(before)
    console.show(found, as_json, found.as_text, indent=1)
    if output is not None:
        with explaining(output, "cannot be written", "name another file", ConfigError):
            atomic_write(output, json.dumps(found.to_json(), indent=1).encode())
    for text in slower:
        console.error(f"slower than in {baseline}: {text}")
    return 1 if slower else 0
