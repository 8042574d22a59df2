"""``dnnstack new``: a config for a folder of pictures."""

from __future__ import annotations

from pathlib import Path

import click

from . import completion, console, options


@click.command(
    short_help="Write a config for a folder of pictures.",
    epilog=options.examples(
        "dnnstack new flowers",
        "dnnstack new flowers --output garden.yaml",
        "dnnstack new flowers --init-from torchvision/resnet18",
        "dnnstack train --config flowers.yaml",
    ),
)
@click.argument("folder", type=options.Named(), shell_complete=completion.files)
@click.option(
    "--output",
    "-o",
    type=options.Named(),
    metavar="FILE",
    shell_complete=completion.files,
    help="File to write; default: the folder's name with .yaml, in this folder.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@options.init_from
@options.runs_dir("runs")
@options.json_output("one JSON object")
def new(
    folder: Path,
    output: Path | None,
    init_from: Path | None,
    overwrite: bool,
    runs_dir: Path | None,
    as_json: bool,
) -> None:
    """Write a config for a folder of pictures: a folder for each class, or train, val and test.

    Looks at the pictures (classes, counts, sizes, colours, files that cannot be read), chooses a
    network, augmentations and a split that fit, and writes a config with comments that dnnstack
    train takes as it is. An existing file is replaced only with --overwrite.
    """
    from ..reports.new_report import as_text, report, write
    from ..training.weights.source import open_source
    from . import downloading

    weights = None
    if init_from is not None:
        given = str(init_from), runs_dir or Path("runs"), console.note, downloading.policy(False)
        weights = str(init_from), open_source(*given)
    found = report(folder, output, overwrite, weights)
    write(found, overwrite)
    console.show(found, as_json, lambda: as_text(found, console.width()))
