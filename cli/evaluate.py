"""``dnnstack eval``: loss and accuracy of a trained network over a whole split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import completion, console, ensembles, options, plugins

if TYPE_CHECKING:
    from ..datasets import ImageSet
    from ..training.inference.evaluate import Evaluation, Part
    from ..training.inference.trained import Trained


@click.command(
    "eval",
    short_help="Evaluate a trained network on a whole split.",
    epilog=options.examples(
        "dnnstack eval",
        "dnnstack eval --run lenet-2 --split validation",
        "dnnstack eval --ensemble lenet-seeds --weights validation",
        "dnnstack eval --data mnist --data-dir ~/data",
        "dnnstack eval --checkpoint runs/lenet/checkpoints/step-8590.safetensors",
    ),
)
@options.trained
@ensembles.option(fitted=True)
@click.argument("more", nargs=-1, metavar="", shell_complete=completion.members)
@options.plugin
@options.evaluated("training")
@options.size
@click.option(
    "--threshold",
    type=options.Share(),
    metavar="P",
    help="Of questions: an answer of more than P, as in 0.3 or 30%, is yes; default: the "
    "config's evaluate.threshold, 0.5.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="First fit the temperature of the probabilities, and what is familiar, to the validation "
    "samples, and save that beside the checkpoint.",
)
@click.option(
    "--keep",
    type=options.Share(),
    metavar="P",
    help="With --calibrate: the share of the validation samples that is familiar; default: 95%.",
)
@options.uncalibrated
@click.option(
    "--plots-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder for confusion.png, reliability.png, errors.png and eval.json; default: "
    "eval-SPLIT in the run's folder, and none for an ensemble.",
)
@click.option("--no-plots", is_flag=True, help="Do not draw these pictures.")
@options.plots_format
@options.json_output("one JSON object")
@options.device("auto")
@options.no_graph
@options.data_dir
def evaluate(
    ensemble: tuple[str, ...],
    more: tuple[str, ...],
    plugin: tuple[Path, ...],
    dataset: str | None,
    part: Part,
    tta: str | None,
    size: str | None,
    threshold: float | None,
    calibrate: bool,
    keep: float | None,
    plots_dir: Path | None,
    no_plots: bool,
    as_json: bool,
    data_dir: Path | None,
    offline: bool,
    **network: Any,
) -> None:
    """Evaluate a trained network: loss, accuracy, classes, confusion matrix.

    Of numbers R2, errors and residuals are shown, and of questions of yes or no precision, recall,
    F1 and ROC AUC. Every picture of the split counts once. Only a checkpoint is needed: without
    --run and --checkpoint, the best one of the latest run. The confusion matrix and the worst
    mistakes are also drawn, into the run's folder; of numbers truth against answer, of questions
    the ROC curves.

    With --ensemble the answers of several networks are combined, and the gain over one of them is
    shown; further names may follow: --ensemble lenet lenet-2 lenet-3.
    """
    from ..reports.ensemble_text import text_of
    from ..reports.tables import WIDTH
    from . import downloading

    if more and not ensemble:
        ctx, plural = click.get_current_context(), "s" * (len(more) > 1)
        raise click.UsageError(f"Got unexpected extra argument{plural} ({' '.join(more)})", ctx)
    if calibrate and (ensemble or network["uncalibrated"]):
        other = "--ensemble" if ensemble else "--uncalibrated"
        raise click.UsageError(f"--calibrate and {other} cannot be used together")
    if keep is not None and not calibrate:
        raise click.UsageError("--keep needs --calibrate")
    plugins.load(plugin)
    model = ensembles.opened((*ensemble, *more), **network)
    downloads = downloading.policy(offline)
    count = ensembles.fitted(model, network["weights"], data_dir, downloads, tta, size)
    if calibrate:
        how = {} if keep is None else {"keep": keep}
        console.note(f"calibrated: {model.calibrate(data_dir=data_dir, offline=offline, **how)}")
    images, index = model.load_part(part, dataset, data_dir, downloads, size, tta)
    with console.bar(len(index) * count, "samples") as advance:
        result = model.evaluate_part(images, index, part, advance, tta, threshold)
    console.show(result, as_json, lambda: text_of(result, console.width() or WIDTH))
    if not no_plots:
        # The folder of one of its networks is not that of an ensemble.
        own = None if plots_dir or ensemble else _plots_dir(model.trained, result)
        if plots_dir or not ensemble:
            _draw(result, images, plots_dir or own, as_json, None if ensemble else model.trained)


def _plots_dir(trained: Trained, result: Evaluation) -> Path | None:
    """``eval-<split>`` in the run's folder, with the name of the data set if it is another one."""
    from ..common.files import refuse_link
    from ..training.records.runs import run_of_checkpoint

    if run_of_checkpoint(trained.path) is None:
        return None
    own = result.dataset == trained.checkpoint.provenance.dataset
    name = f"eval-{result.part}" if own else f"eval-{result.dataset}-{result.part}"
    folder = trained.path.parent.parent / name
    refuse_link(folder)
    return folder


def _draw(
    result: Evaluation, images: ImageSet, folder: Path | None, as_json: bool, of: Trained | None
) -> None:
    """Draw the plots and store what was found, unless there is no folder for them."""
    from ..reports.evaluate_plots import draw_plots
    from ..reports.stored import store_evaluation

    if folder is None:
        console.note(
            f"{result.checkpoint} is not in the folder of a run, so no plots are drawn; "
            "name a folder with --plots-dir"
        )
        return

    def drawn() -> list[Path]:
        written = draw_plots(result, images, folder)
        if of is not None:
            store_evaluation(of, result, folder)
        return written

    console.draw(folder, as_json, drawn, kind="plots")
