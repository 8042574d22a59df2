"""``dnnstack explain``: which library call each layer became, what it costs, how fast it runs."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..common.machine_load import Others
from . import console, options, plugins
from . import ranks as several

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..backends.select import Device
    from ..configs import LoadedConfig


@click.command(
    epilog=options.examples(
        "dnnstack explain --config lenet.yaml",
        "dnnstack explain --config lenet.yaml --measure | less",
        "dnnstack explain --config lenet.yaml --card h100",
        "dnnstack explain --config lenet.yaml --set run.fusion=false",
        "dnnstack explain --config lenet.yaml --measure --json > explained.json",
        "dnnstack explain --config lenet.yaml --algorithms",
    )
)
@options.config()
@options.overrides
@options.plugin
@click.option(
    "--measure", is_flag=True, help="Also time every call, and measure the machine's limits."
)
@click.option(
    "--trace",
    type=options.Named(),
    metavar="FILE.json",
    help="With --measure: also write the calls for Perfetto, in the format of Chrome's tracing.",
)
@click.option(
    "--roofline",
    type=options.Named(),
    metavar="FILE.svg",
    help="With --measure: also draw how near the operations come to the machine's limits.",
)
@click.option(
    "--algorithms",
    is_flag=True,
    help="Instead, run each convolution in every way that there is, and compare them.",
)
@options.json_output("one JSON object")
@options.device("run.device of the config")
@options.card
@several.option
@options.no_graph
def explain(
    reference: str, overrides: tuple[str, ...], plugin: tuple[Path, ...], measure: bool,
    trace: Path | None, roofline: Path | None, algorithms: bool, as_json: bool,
    device: Device | None, threads: int | None, card: str | None, ranks: int | None, no_graph: bool,
) -> None:  # fmt: skip
    """Show what a training step is made of, layer by layer.

    For forward, backward and update of each layer: the operations, which of them were fused, the
    library call with its arguments, implementation and layouts, floating-point operations and
    bytes; with --measure also the time, and its share of the machine's measured limit. No data is
    read. What it finds of RUN/config.yaml is stored there, for ``report``. Lines are broken for a
    terminal, or for the columns that COLUMNS says; in a pipe or a file they are whole. With --card,
    what becomes of the step on a GPU that need not be there, and what only timing would decide.
    """
    from dataclasses import replace

    from ..backends.select import foreseen_card, open_backend
    from ..configs import load_config, placed
    from ..reports import explain as explaining
    from ..reports.contact_sheet import write
    from ..reports.explain_text import as_text
    from ..reports.foreseen import foresee
    from ..reports.glance import trace as traced
    from ..reports.stored import store_explanation

    _check_usage(measure, {"trace": trace, "roofline": roofline}, algorithms, ranks, card)
    team = several.joined(ranks)
    with nullcontext() if team is None else team.together():
        loaded = load_config(reference, overrides, plugins.opened(plugin))
        machine = loaded.config.run
        if team is None:
            card = foreseen_card(card, device, machine.device, measure or algorithms)
        if card is None:
            count = several.threads(threads or machine.threads, team)
            backend = open_backend(device or machine.device, count, console.note, not no_graph)
    if algorithms:
        _compare(loaded, backend, as_json)
        return
    others, given = Others(), (loaded.config, loaded.path)
    with placed(loaded), several.explaining(team) as (share, agreed):
        if card is None:
            explanation = explaining.explain(*given, backend, measure, console.note, share, agreed)
        else:
            explanation = foresee(*given, card, console.note)
    if team is not None and team.rank:
        return
    if team is None and measure and backend.waiting_threads and (remark := others.remark()):
        console.note(remark)
    told = replace(explanation, config=loaded.title)
    if trace is not None:
        write(traced(told).encode(), trace)
    if roofline is not None:
        write(told.roofline().encode(), roofline)
    console.show(explanation, as_json, lambda: as_text(told, console.asked_width()), indent=1)
    if not overrides and card is None:
        path = loaded.path
        console.draw(path.parent, as_json, lambda: store_explanation(explanation, path))


def _check_usage(
    measure: bool, files: dict[str, Path | None], algorithms: bool, ranks: int | None,
    card: str | None,
) -> None:  # fmt: skip
    for name, file in files.items():
        if file and not measure:
            raise click.UsageError(f"--{name} needs --measure")
    if algorithms and (measure or ranks):
        raise click.UsageError("--algorithms cannot be used with --measure or --ranks")
    if card and (ranks or 1) > 1:
        raise click.UsageError("--card is of one GPU: leave out --ranks")


def _compare(loaded: LoadedConfig, backend: Backend, as_json: bool) -> None:
    from dataclasses import replace

    from ..configs import placed
    from ..reports.algorithms import compare

    with placed(loaded):
        found = compare(loaded.config, loaded.path, backend)
    told = replace(found, config=loaded.title)
    console.show(found, as_json, lambda: told.as_text(console.asked_width()), indent=1)
