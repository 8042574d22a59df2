"""``dnnstack report``: how runs went, and what a sweep or a compression has found."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from . import completion, console, options, plugins


@click.command(
    short_help="Show runs as a page, or a sweep or a compression.",
    epilog=options.examples(
        "dnnstack report lenet --measure",
        "dnnstack report lenet lenet-2 -o both.html",
        "dnnstack report lenet-sweep --plots-dir plots",
        "dnnstack report lenet-compressed --json",
        "dnnstack report runs/lenet-compressed/lenet.dnnz --no-plots",
    ),
)
@click.argument(
    "targets",
    nargs=-1,
    metavar="[RUN...|SWEEP|COMPRESSION|FILE]",
    shell_complete=completion.reported,
)
@options.runs_dir("runs")
@click.option(
    *("--output", "-o"),
    type=options.Named(),
    metavar="FILE",
    help="File of the page; default: report.html in the run's folder, of several above the first.",
)
@click.option("--measure", is_flag=True, help="First evaluate and explain the runs, with times.")
@click.option("--watch", is_flag=True, help="Renew the page while the training goes on.")
@click.option(
    "--plots-dir",
    type=options.Named(),
    metavar="FOLDER",
    help="Folder for the pictures; default: that of the sweep or of the compressed network.",
)
@click.option("--no-plots", is_flag=True, help="Draw no pictures.")
@options.plots_format
@options.plugin
@options.device("auto")
@options.data_dir
@options.json_output("one JSON object")
def report(
    targets: tuple[str, ...],
    runs_dir: Path | None,
    plots_dir: Path | None,
    no_plots: bool,
    as_json: bool,
    **page: Any,
) -> None:
    """Show how runs went as one page, what a sweep has found, or what a compression brought.

    NAME is a run, a sweep or a compression in the folder of the runs, or its folder; it may still
    be under way. It may also be a compressed network (.dnnz). Without one: the latest run.

    Of runs: one HTML file that needs a browser alone, from what train, eval and explain stored.

    Of a sweep: its best trials, and how much each key matters; and pictures by Optuna: trials.png,
    each trial and the best so far; validations.png; parallel.png, parallel coordinates;
    importance.png, from ten complete trials on; and with two objectives front.png, the trials that
    no other beats. best.yaml, beside them, is the config of the best trial, ready to train.

    Of a compressed network: what each array takes in the file, what was measured after each stage,
    and how sensitive its layers are if compress --sensitivity has measured it; and pictures:
    weights.png, the weights before and after; mask.png, the weights that are left of a dense layer;
    sensitivity.png.
    """
    from ..many.group import group_at
    from ..training.compressed.place import is_compression
    from ..training.records.formats.dnnz import is_compressed
    from ..training.records.runs import find_run

    plugins.load(page["plugin"])
    runs, one = runs_dir or Path("runs"), targets[0] if len(targets) == 1 else ""
    named = (runs / one, Path(one)) if one else ()
    group = group_at(one, runs) if one else None
    paths = [path for path in named if is_compression(path) or is_compressed(path)]
    if group is None and not paths:
        if plots_dir or no_plots:
            raise click.UsageError("--plots-dir and --no-plots are for sweeps and compressions")
        what = "run, sweep or compression"
        return _of_runs([find_run(each, runs, what) for each in targets or [None]], as_json, page)
    if page["output"] or page["measure"] or page["watch"]:
        raise click.UsageError("--output, --measure and --watch are for runs")
    if group is not None:
        return _of_sweep(group, plots_dir, no_plots, as_json)
    return _of_compression(paths[0], plots_dir, no_plots, as_json)


def _of_runs(folders: list[Path], as_json: bool, given: dict[str, Any]) -> None:
    from ..common.locks import is_locked
    from ..reports.run_page import write_page
    from ..training.records.formats.record import file_marks
    from ..training.records.formats.run_log import LOG
    from ..training.records.runs import LOCK
    from .downloading import policy

    if given["measure"]:
        from ..reporting import renew

        where: tuple[Any, Any, Any] = given["device"] or "auto", given["threads"], given["data_dir"]
        for each in folders:
            renew(each, *where, policy(given["offline"]), console.note)
    seen: object = None
    while given["watch"] and any(is_locked(each / LOCK) for each in folders):
        if seen != (seen := [file_marks(each / LOG) for each in folders]):
            write_page(folders, given["output"], live=True)
        time.sleep(1)
    page = write_page(folders, given["output"])
    console.show(page, as_json, page.as_text)


def _of_sweep(path: Path, plots_dir: Path | None, no_plots: bool, as_json: bool) -> None:
    from ..common.errors import DnnstackError, Warned
    from ..many.sampling import need_optuna
    from ..reports.sweep_plots import draw_sweep
    from ..reports.sweep_report import report_sweep
    from ..reports.sweep_text import report_text
    from ..reports.tables import WIDTH

    try:
        need_optuna("the importance of keys and the pictures")
    except DnnstackError as error:
        console.note(Warned(str(error)))
        no_plots = True
    found = report_sweep(path)
    console.show(found, as_json, lambda: report_text(found, console.width() or WIDTH))
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
