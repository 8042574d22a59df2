"""``dnnstack export``: a trained network as a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from . import completion, console, options, plugins

# Those of exports.format.formats(), whose import would slow down every command.
FORMATS = ("c", "html", "numpy", "onnx", "torch")


@click.command(
    short_help="Write a trained network as a file for other programs.",
    epilog=options.examples(
        "dnnstack export -o digits.onnx",
        "dnnstack export lenet --int8 -o lenet.c",
        "dnnstack export lenet --format html -o lenet.html",
        "dnnstack export lenet --format numpy -o lenet.py",
        "dnnstack export lenet --format torch -o lenet_torch.py",
    ),
)
@click.argument("run", metavar="[RUN]", required=False, shell_complete=completion.runs)
@click.option(
    "--format",
    "kind",
    type=click.Choice(FORMATS),
    help="Kind of file; default: that of FILE's suffix, of .py numpy.",
)
@click.option(
    "--output",
    "-o",
    type=options.Named(),
    metavar="FILE",
    required=True,
    shell_complete=completion.files,
    help="File to write; one that is there is replaced.",
)
@click.option(
    "--int8",
    is_flag=True,
    help="Compute with 8-bit integers, chosen on training samples; for c, html, numpy and onnx.",
)
@click.option(
    "--weights",
    type=click.Choice(("fp16", "fp32")),
    help="How weights are stored, for html; they compute in floats.  [default: fp16]",
)
@click.option(
    "--raw",
    is_flag=True,
    help="For onnx: the input is (N, C, H, W) float32, pixels from 0 to 255 of the network's size.",
)
@click.option("--no-check", is_flag=True, help="Do not compare the answers with those of predict.")
@click.option(
    "--checkpoint",
    type=options.Named(),
    metavar="FILE",
    help="Export the network of this checkpoint; default: the best one of RUN, or of the latest "
    "run.",
)
@options.plugin
@options.json_output("one JSON object")
@options.device("auto")
@options.data_dir
@options.runs_dir("runs")
def export(
    run: str | None,
    kind: str | None,
    output: Path,
    int8: bool,
    no_check: bool,
    checkpoint: Path | None,
    plugin: tuple[Path, ...],
    as_json: bool,
    device: Any,
    threads: int | None,
    data_dir: Path | None,
    offline: bool,
    runs_dir: Path | None,
    **given: Any,
) -> None:
    """Write a trained network as a file that other programs run: with classes and preprocessing.

    Before it is written, the file and predict answer to samples of the test set, or to drawn ones
    where there is none; if the answers differ, nothing is written, and the layer is named. RUN is a
    run's folder or name; default: the latest run, of which the best checkpoint is taken.
    """
    from ..classifier import open_classifier

    if run is not None and checkpoint is not None:
        raise click.UsageError("RUN and --checkpoint cannot be used together")
    plugins.load(plugin)
    where = runs_dir or Path("runs")
    with open_classifier(run, checkpoint, where, device, threads, notice=console.note) as model:
        done = model.export(
            output,
            kind,
            check=not no_check,
            int8=int8,
            data_dir=data_dir,
            offline=offline,
            **{name: value for name, value in given.items() if value},
        )
    console.show(done, as_json, done.as_text, indent=1)
