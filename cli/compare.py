"""``dnnstack compare``: two trained networks on the same pictures."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import completion, console, options, plugins

if TYPE_CHECKING:
    from ..backends.select import Device
    from ..training.inference.evaluate import Part


@click.command(
    epilog=options.examples(
        "dnnstack compare lenet lenet-2",
        "dnnstack compare lenet runs/lenet/checkpoints/step-8590.safetensors --json",
    ),
)
@click.argument("first", metavar="RUN", shell_complete=completion.runs)
@click.argument("second", metavar="RUN", shell_complete=completion.runs)
@options.runs_dir("runs")
@options.plugin
@options.evaluated("the first network's training")
@options.json_output("one JSON object")
@options.device("auto")
@options.no_graph
@options.data_dir
def compare(
    first: str,
    second: str,
    runs_dir: Path | None,
    plugin: tuple[Path, ...],
    dataset: str | None,
    part: Part,
    tta: str | None,
    as_json: bool,
    device: Device | None,
    threads: int | None,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
) -> None:
    """Compare two networks on the same pictures: McNemar's test.

    RUN is a run, of which the best checkpoint is taken, or a checkpoint file. What counts are the
    pictures that only one of the two networks gets right: if they were equally good, each would get
    half of them. p is the probability of a division at least as uneven as the one found.
    """
    from ..comparing import compare_networks
    from ..reports.compare_text import as_text
    from ..reports.tables import WIDTH
    from . import downloading

    plugins.load(plugin)
    with ExitStack() as stack:
        result = compare_networks(
            (first, second), runs_dir or Path("runs"), part, dataset, tta,
            device or "auto", threads, not no_graph, data_dir,
            downloading.policy(offline), console.note,
            lambda total: stack.enter_context(console.bar(total, "samples")),
        )  # fmt: skip
    console.show(result, as_json, lambda: as_text(result, console.width() or WIDTH))
