"""``dnnstack import``: a network that another program has trained, as a run."""

from __future__ import annotations

from pathlib import Path

import click

from . import completion, console, options

_NOT_WHOLE = 3
"""Exit status: the weights alone could be written."""
_LONGEST = 1 << 24


def _numbers(ctx: click.Context, param: click.Parameter, value: str | None) -> list[float] | None:
    """Numbers between commas."""
    try:
        return None if value is None else [float(each) for each in value.split(",")]
    except ValueError:
        said = f"expected numbers between commas, as in 0.5,0.4 (got '{value}')"
        raise click.BadParameter(said, ctx, param) from None


@click.command(
    "import",
    short_help="Make a run of a network in an ONNX file.",
    epilog=options.examples(
        "dnnstack import cats.onnx --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225",
        "dnnstack import lenet.onnx --set data.dataset=mnist",
        "dnnstack import cats.onnx --classes cat,lynx,puma --size 64",
    ),
)
@click.argument("file", type=options.Named(), metavar="FILE.onnx", shell_complete=completion.files)
@click.option("--name", metavar="NAME", help="Name of the run; default: that of the file.")
@click.option(
    "--size",
    metavar="PIXELS",
    help="Size of the pictures, such as 224 or 48x64 (height x width), where the file leaves it "
    "open.",
)
@click.option(
    "--mean",
    callback=_numbers,
    metavar="M,M,M",
    help="Mean that the network expects to be subtracted from pixels / 255, one number or one for "
    "each channel; default: nothing is, unless the file does it.",
)
@click.option(
    "--std",
    callback=_numbers,
    metavar="S,S,S",
    help="Deviation by which the rest is divided, in the same way.",
)
@click.option(
    "--classes",
    metavar="FILE|A,B,C",
    shell_complete=completion.files,
    help="Names of the classes in the order of the outputs, or a file with one in each line; "
    "default: those in the file, else numbers from 0.",
)
@options.overrides
@options.json_output("one JSON object")
@options.runs_dir("runs")
def import_(
    file: Path,
    name: str | None,
    size: str | None,
    mean: list[float] | None,
    std: list[float] | None,
    classes: str | None,
    overrides: tuple[str, ...],
    as_json: bool,
    runs_dir: Path | None,
) -> int:
    """Make a run of a network in an ONNX file, for eval, predict and fine-tuning.

    Layers, weights and names of classes are read. If the file has a node that no layer computes,
    such nodes are listed, the weights alone are written, and the exit status is 3.
    """
    from ..arguments import picture_size
    from ..imports.onnx_run import Wishes, import_network

    names = None if classes is None else _names(classes)
    wishes = Wishes(name, picture_size(size), mean, std, names, overrides)
    found = import_network(file, wishes, runs_dir or Path("runs"), console.note)
    console.show(found, as_json, found.as_text, indent=1)
    return _NOT_WHOLE if found.reasons else 0


def _names(given: str) -> list[str]:
    """The lines of a file, else what stands between commas."""
    from ..common.errors import UsageError
    from ..common.files import read_regular

    if not Path(given).is_file():
        return given.split(",")
    try:
        lines = read_regular(given, _LONGEST).decode().splitlines()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise UsageError(f"--classes: {given}: cannot be read: {why}") from None
    return [line.strip() for line in lines if line.strip()]
