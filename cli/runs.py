"""``dnnstack runs``: the runs of a folder and their states."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import get_terminal_size

import click

from . import completion, console, options


@click.command(
    epilog=options.examples(
        "dnnstack runs",
        "dnnstack runs --runs-dir ~/experiments",
        "dnnstack runs --json",
        "dnnstack runs --group lenet-seeds",
    )
)
@options.runs_dir("runs")
@click.option(
    "--group",
    "--sweep",
    "group",
    metavar="NAME",
    shell_complete=completion.groups,
    help="List the runs of this group: of seeds and folds with mean, deviation, minimum and "
    "maximum; of a sweep with the values of each trial.",
)
@options.json_output("a list of objects, one for each run; with --group one object")
def runs(runs_dir: Path | None, group: str | None, as_json: bool) -> int:
    """List runs: state, best accuracy, steps, time.

    A run is running, finished, interrupted (by a signal, after saving), failed (its log says why),
    or died (its process ended without a message). The last three can be continued with dnnstack
    train --resume. Accuracy is that of the best validation; time is that of training alone. If the
    records of a run cannot be read, an error names them, the others are still listed, and the exit
    status is 1. Compressed networks stand below their run. Groups of runs follow in a table of
    their own.
    """
    from ..common.printable import paragraph, printable
    from ..many.group import list_groups
    from ..many.statistics import report_group
    from ..reports.compressed_runs import compressed_runs, of_no_run
    from ..reports.group_text import groups_text
    from ..reports.runs_report import as_text, group_state, report_runs

    folder = runs_dir or Path("runs")
    if group is not None:
        _tell_group(group, folder, as_json)
        return 0
    faults: list[str] = []
    reports = report_runs(folder, faults.append)
    for fault in faults:
        console.error(fault)
    if as_json:
        console.say(json.dumps([one.to_json() for one in reports]))
        return 1 if faults else 0
    width = get_terminal_size().columns
    names = list_groups(folder)
    if reports or faults:
        console.tell(as_text(reports, width))
    others = of_no_run([one.path for one in reports], compressed_runs(folder))
    if others:
        console.tell(paragraph([*[""] * bool(reports or faults), *others]))
    if names and (reports or faults or others):
        console.tell("")
    if names:
        groups = [report_group(folder / name) for name in names]
        states = [group_state(each.path, each.planned) for each in groups]
        console.tell(groups_text(groups, width, states))
    elif not (reports or faults or others):
        console.tell(
            f"no run in {printable(folder)} yet; dnnstack train --config digits.yaml creates one"
        )
    return 1 if faults else 0


def _tell_group(name: str, folder: Path, as_json: bool) -> None:
    from ..many.group import find_group
    from ..many.journal import Journal
    from ..many.statistics import report_group
    from ..many.sweeping import read_search
    from ..reports.group_text import as_text
    from ..reports.sweep_report import described
    from ..reports.sweep_text import listed

    report = report_group(find_group(name, folder))
    found = report.to_json()
    if report.kind == "sweep":
        search = read_search(report.path)
        trials = Journal(report.path, search).read()
        found |= described(report.path, search, trials)
        text = listed(report.path, search, trials, get_terminal_size().columns)
    else:
        text = as_text(report, get_terminal_size().columns)
    if as_json:
        console.say(json.dumps(found))
    else:
        console.tell(text)
