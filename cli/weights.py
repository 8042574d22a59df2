"""``dnnstack weights``: what a file of weights contains, and what a network would take of it."""

from __future__ import annotations

from pathlib import Path

import click

from . import completion, console, options, plugins


@click.command(
    short_help="Show the weights of a run or a file.",
    epilog=options.examples(
        "dnnstack weights resnet18.safetensors",
        "dnnstack weights resnet18.safetensors --config resnet18.yaml",
        "dnnstack weights runs/mine --save mine.safetensors",
    ),
)
@click.argument("source", metavar="RUN|FILE|MODEL", shell_complete=completion.weights)
@options.config(required=False)
@options.overrides
@options.plugin
@click.option(
    "--save",
    type=options.Named(),
    metavar="FILE",
    shell_complete=completion.files,
    help="Write the weights to this .safetensors file; those of a run of resnet18.yaml or "
    "vgg16.yaml get torchvision's names, those of other networks keep their own.",
)
@options.json_output("one JSON object")
@options.runs_dir("runs")
def weights(
    source: str,
    reference: str | None,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    save: Path | None,
    as_json: bool,
    runs_dir: Path | None,
) -> None:
    """Show the weights of a run, a file or a model of a hub: names, shapes, types.

    With --config, also what a training of that config would take of them with train --init-from.
    Of a run, its best checkpoint is used. Nothing is trained.
    """
    from ..configs import load_config, placed
    from ..reports.weights_report import WeightsReport
    from ..training.assemble import build_network, describe_data
    from ..training.weights.export import save_weights
    from ..training.weights.source import open_source
    from ..training.weights.start import begin
    from . import downloading

    if (overrides or plugin) and reference is None:
        raise click.UsageError("--set and --plugin are about a config; give one with --config")
    given = source, runs_dir or Path("runs"), console.note, downloading.policy(False)
    found = open_source(*given)
    start = None
    if reference is not None:
        loaded = load_config(reference, overrides, plugins.opened(plugin))
        with placed(loaded):
            network = build_network(loaded.config, describe_data(loaded.config), loaded.path)
            wanted = loaded.config.init_from
            shapes = {tensor.name: tensor.shape for tensor in network.learned()}
            start = begin(found, shapes, (wanted.skip if wanted is not None else None) or ())
    if save is not None:
        save_weights(found, save)
        console.note(f"weights written to {save}")
    report = WeightsReport(found, start)
    console.show(report, as_json, lambda: report.as_text(console.width()), indent=1)
