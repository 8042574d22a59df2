"""``dnnstack runs``: the runs of a folder and their states."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import get_terminal_size

import click

from . import console, options


@click.command(
    epilog=options.examples(
        "dnnstack runs",
        "dnnstack runs --runs-dir ~/experiments",
        "dnnstack runs --json",
    )
)
@options.runs_dir("runs")
@options.json_output("a list of objects, one for each run")
def runs(runs_dir: Path | None, as_json: bool) -> int:
    """List runs: state, best accuracy, steps, time.

    A run is running, finished, interrupted (by a signal, after saving), failed (its log says why),
    or died (its process ended without a message). The last three can be continued with dnnstack
    train --resume. Accuracy is that of the best validation; time is that of training alone. If the
    records of a run cannot be read, an error names them, the others are still listed, and the exit
    status is 1.
    """
    from ..common.printable import printable
    from ..reports.runs_report import as_text, report_runs

    folder = runs_dir or Path("runs")
    faults: list[str] = []
    reports = report_runs(folder, faults.append)
    for fault in faults:
        console.error(fault)
    if as_json:
        console.say(json.dumps([one.to_json() for one in reports]))
    elif reports or faults:
        console.tell(as_text(reports, get_terminal_size().columns))
    else:
        console.tell(
            f"no run in {printable(folder)} yet; dnnstack train --config digits.yaml creates one"
        )
    return 1 if faults else 0
