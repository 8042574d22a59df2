"""``dnnstack eval``: loss and accuracy of a trained network over a whole split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import completion, console, options, plugins

if TYPE_CHECKING:
    from ..backends.select import Device
    from ..datasets import ImageSet
    from ..training.evaluate import Evaluation, Part
    from ..training.records.trained import Trained


@click.command(
    "eval",
    short_help="Evaluate a trained network on a whole split.",
    epilog=options.examples(
        "dnnstack eval",
        "dnnstack eval --run lenet-2 --split validation",
        "dnnstack eval --data mnist --data-dir ~/data",
        "dnnstack eval --checkpoint runs/lenet/checkpoints/step-8590.safetensors --json",
    ),
)
@options.trained
@options.plugin
@click.option(
    "--data",
    "dataset",
    metavar="NAME",
    shell_complete=completion.datasets,
    help="Data set; default: that of training.",
)
@click.option(
    "--split",
    "part",
    type=click.Choice(["train", "validation", "test"]),
    default="test",
    show_default=True,
    help="The test set, or one of the two parts into which training divided the training set.",
)
@click.option(
    "--tta",
    type=click.Choice(["none", "mirror", "mirror+translate"]),
    help="Test-time augmentation: average over views of each picture; default: the config's.",
)
@click.option(
    "--plots-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for confusion.png and errors.png; default: eval-SPLIT in the run's folder.",
)
@click.option("--no-plots", is_flag=True, help="Do not draw confusion.png and errors.png.")
@options.json_output("one JSON object")
@options.device("auto")
@options.no_graph
@options.data_dir
def evaluate(
    run: str | None,
    checkpoint: Path | None,
    runs_dir: Path | None,
    plugin: tuple[Path, ...],
    dataset: str | None,
    part: Part,
    tta: str | None,
    plots_dir: Path | None,
    no_plots: bool,
    as_json: bool,
    device: Device | None,
    threads: int | None,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
) -> None:
    """Evaluate a trained network: loss, accuracy, classes, confusion matrix.

    Every picture of the split counts once. Only a checkpoint is needed: without --run and
    --checkpoint, the best one of the latest run. The confusion matrix and the worst mistakes are
    also drawn, into the run's folder.
    """
    import json

    from ..classifier import open_classifier
    from ..reports.evaluate_text import WIDTH, as_text
    from . import downloading

    plugins.load(plugin)
    model = open_classifier(
        run, checkpoint, runs_dir or Path("runs"), device or "auto", threads, not no_graph,
        console.note,
    )  # fmt: skip
    images, index = model.load_part(part, dataset, data_dir, downloading.policy(offline))
    with console.bar(len(index), "images") as advance:
        result = model.evaluate_part(images, index, part, advance, tta)
    if as_json:
        console.say(json.dumps(result.to_json()))
    else:
        console.tell(as_text(result, console.width() or WIDTH))
    if not no_plots:
        _draw(result, images, plots_dir or _plots_dir(model.trained, result), as_json)


def _plots_dir(trained: Trained, result: Evaluation) -> Path | None:
    """``eval-<split>`` in the run's folder, with the name of the data set if it is another one."""
    from ..training.records.runs import run_of_checkpoint

    if run_of_checkpoint(trained.path) is None:
        return None
    own = result.dataset == trained.checkpoint.provenance.dataset
    name = f"eval-{result.part}" if own else f"eval-{result.dataset}-{result.part}"
    return trained.path.parent.parent / name


def _draw(result: Evaluation, images: ImageSet, folder: Path | None, as_json: bool) -> None:
    """Draw the plots and print their names, with JSON on stderr; a failure is only noted."""
    from ..common.errors import DatasetError
    from ..common.printable import printable
    from ..reports.evaluate_plots import draw_plots

    if folder is None:
        console.note(
            f"{result.checkpoint} is not in the folder of a run, so no plots are drawn; "
            "name a folder with --plots-dir"
        )
        return
    try:
        for path in draw_plots(result, images, folder):
            if as_json:
                console.note(f"drawn: {path}")
            else:
                console.tell(f"drawn     {printable(path)}")
    except BrokenPipeError:
        # The reader of the output is gone; the plots themselves did not fail.
        raise
    except (OSError, ImportError, DatasetError) as error:
        reason = f"{folder}: {error.strerror}" if isinstance(error, OSError) else str(error)
        console.note(f"the plots were not drawn: {reason}")
