"""``dnnstack eval``: loss and accuracy of a trained network over a whole split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import console, downloading, options

if TYPE_CHECKING:
    from ..layers.backends.select import Device
    from ..training.evaluate import Part


@click.command(
    "eval",
    epilog=options.examples(
        "dnnstack eval",
        "dnnstack eval --run lenet-2 --split validation",
        "dnnstack eval --data mnist --data-dir ~/data",
        "dnnstack eval --checkpoint runs/lenet/checkpoints/step-8590.safetensors --json",
    ),
)
@options.trained
@click.option("--data", "dataset", metavar="NAME", help="Another data set than the one trained on.")
@click.option(
    "--split",
    "part",
    type=click.Choice(["train", "validation", "test"]),
    default="test",
    show_default=True,
    help="The test set, or one of the two parts into which training has cut the training set.",
)
@options.json_output("one JSON object")
@options.device("auto")
@options.data_dir
def evaluate(
    run: str | None,
    checkpoint: Path | None,
    runs_dir: Path | None,
    dataset: str | None,
    part: Part,
    as_json: bool,
    device: Device | None,
    threads: int | None,
    data_dir: Path | None,
    offline: bool,
) -> None:
    """Evaluate a trained network: loss, accuracy, confusion matrix.

    Every picture of the split counts once. All that is needed comes from the checkpoint; without
    --run and --checkpoint it is the best one of the latest run.
    """
    import json

    from ..datasets import data_root
    from ..layers.backends.select import open_backend
    from ..training import evaluate as evaluation
    from ..training.evaluate_text import as_text
    from ..training.trained import find_trained

    trained = find_trained(run, checkpoint, runs_dir or Path("runs"), console.note)
    backend = open_backend(device or "auto", threads, console.note)
    root = data_root(data_dir, trained.config.data.root)
    images, index = evaluation.load_part(trained, part, root, dataset, downloading.policy(offline))
    with console.bar(len(index), "images") as advance:
        result = evaluation.evaluate(trained, backend, images, index, part, advance)
    click.echo(json.dumps(result.to_json()) if as_json else as_text(result))
