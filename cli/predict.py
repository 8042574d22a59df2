"""``dnnstack predict``: what a trained network sees in picture files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import console, options

if TYPE_CHECKING:
    from ..layers.backends.select import Device


@click.command(
    short_help="Recognise pictures.",
    epilog=options.examples(
        "dnnstack predict 5.png",
        "dnnstack predict --run lenet --top 3 scans/*.jpg",
        "dnnstack predict --json *.png > answers.jsonl",
    ),
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@options.trained
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="K",
    help="How many classes to name, the likeliest first.",
)
@options.json_output("JSON Lines: one object for each picture")
@options.device("auto")
def predict(
    paths: tuple[Path, ...],
    run: str | None,
    checkpoint: Path | None,
    runs_dir: Path | None,
    top: int,
    as_json: bool,
    device: Device | None,
    threads: int | None,
) -> int:
    """Recognise pictures: PNG, JPEG, GIF, BMP, TIFF, WEBP or PPM of any size.

    For digit networks a dark or light digit is found on its page and brought to MNIST's format. A
    picture that cannot be read is reported, the others go on, and the exit status is 1.
    """
    import json

    from ..common.errors import DatasetError
    from ..layers.backends.select import open_backend
    from ..training import predict as prediction
    from ..training.trained import find_trained

    trained = find_trained(run, checkpoint, runs_dir or Path("runs"), console.note)
    backend = open_backend(device or "auto", threads, console.note)
    width = max(len(str(path)) for path in paths)
    status = 0
    for answer in prediction.predict(trained, backend, paths, top):
        if isinstance(answer, DatasetError):
            console.error(str(answer))
            status = 1
        elif as_json:
            click.echo(json.dumps(answer.to_json()))
        else:
            click.echo(prediction.as_text(answer, width))
    return status
