"""``dnnstack report``: what a sweep or a compression has found."""

from __future__ import annotations

from pathlib import Path

import click

from . import completion, console, options


@click.command(
    epilog=options.examples(
        "dnnstack report lenet-sweep",
        "dnnstack report lenet-sweep --plots-dir plots",
        "dnnstack report lenet-compressed --json",
        "dnnstack report runs/lenet-compressed/lenet.dnnz --no-plots",
    )
)
@click.argument("target", metavar="SWEEP|COMPRESSION|FILE", shell_complete=completion.reported)
@options.runs_dir("runs")
@click.option(
    "--plots-dir",
    type=options.Named(),
    metavar="FOLDER",
    help="Folder for the pictures; default: that of the sweep or of the compressed network.",
)
@click.option("--no-plots", is_flag=True, help="Draw no pictures.")
@options.plots_format
@options.json_output("one JSON object")
def report(
    target: str, runs_dir: Path | None, plots_dir: Path | None, no_plots: bool, as_json: bool
) -> None:
    """Show what a sweep has found, or what a compression brought.

    A sweep or a compression is its name in the folder of the runs, or its folder; it may still be
    under way. FILE is a compressed network (.dnnz).

    Of a sweep: its best trials, and how much each key matters; and pictures by Optuna: trials.png,
    each trial and the best so far; validations.png; parallel.png, parallel coordinates;
    importance.png, from ten complete trials on; and with two objectives front.png, the trials that
    no other beats. best.yaml, beside them, is the config of the best trial, ready to train.

    Of a compressed network: what each array takes in the file, what was measured after each stage,
    and how sensitive its layers are if compress --sensitivity has measured it; and pictures:
    weights.png, the weights before and after; mask.png, the weights that are left of a dense layer;
    sensitivity.png.
    """
    from ..common.errors import CheckpointError
    from ..many.group import group_at
    from ..training.compressed.place import is_compression
    from ..training.records.formats.dnnz import is_compressed

    runs = runs_dir or Path("runs")
    group = group_at(target, runs)
    if group is not None:
        return _of_sweep(group, plots_dir, no_plots, as_json)
    for path in (runs / target, Path(target)):
        if is_compression(path) or is_compressed(path):
            return _of_compression(path, plots_dir, no_plots, as_json)
    raise CheckpointError(_unknown(target, runs))


def _of_sweep(path: Path, plots_dir: Path | None, no_plots: bool, as_json: bool) -> None:
    from ..common.errors import DnnstackError, Warned
    from ..many.sampling import need_optuna
    from ..reports.sweep_plots import draw_sweep
    from ..reports.sweep_report import report_sweep
    from ..reports.sweep_text import report_text

    try:
        need_optuna("the importance of keys and the pictures")
    except DnnstackError as error:
        console.note(Warned(str(error)))
        no_plots = True
    found = report_sweep(path)
    console.show(found, as_json, lambda: report_text(found, console.width() or 80))
    folder = plots_dir or found.path
    if not no_plots:
        console.draw(folder, as_json, lambda: draw_sweep(found, folder), margin=12)


def _of_compression(path: Path, plots_dir: Path | None, no_plots: bool, as_json: bool) -> None:
    from ..reports.compression import report_compression

    found = report_compression(path, console.note)
    console.show(found, as_json, lambda: found.as_text(console.width()))
    folder = plots_dir or found.folder
    if not no_plots:
        console.draw(folder, as_json, lambda: found.draw(folder, console.note), margin=12)


def _unknown(target: str, runs: Path) -> str:
    """What to say of something that is neither a sweep nor a compression."""
    from ..many.group import list_groups
    from ..training.compressed.place import list_compressions
    from ..training.records.runs import is_run

    for path in (runs / target, Path(target)):
        if is_run(path):
            curves = min(path.glob("curves.*"), default=None)
            drawn = f"in {curves}, and " if curves else ""
            return (
                f"{path}: is a single run; report shows sweeps and compressed networks; how "
                f"a run went is {drawn}told by dnnstack eval --run {path}"
            )
        if path.is_file():
            return f"{path}: is not a compressed network (.dnnz)"
    known = ", ".join(sorted({*list_groups(runs), *list_compressions(runs)})) or "none"
    return f"{target}: no such sweep or compression; in {runs} there are: {known}"
