"""``dnnstack doctor``: whether this machine has what training needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import console, options

if TYPE_CHECKING:
    from ..reports.doctor import Finding

_LEFT = 26


@click.command(
    short_help="Examine this machine: what it has, and what is missing.",
    epilog=options.examples(
        "dnnstack doctor",
        "dnnstack doctor --data-dir ~/data",
        "dnnstack doctor --json > report.json",
    ),
)
@options.json_output("one JSON object")
@click.option(
    "--data-dir",
    type=options.Named(),
    metavar="FOLDER",
    help="Folder of the data sets to examine; default: $DNNSTACK_DATA, else the user's cache "
    "folder.",
)
@options.runs_dir("runs")
def doctor(as_json: bool, data_dir: Path | None, runs_dir: Path | None) -> int:
    """Examine this machine: versions, processor, oneDNN, GPU, data, folders.

    Prints where everything was found, or what to install. Nothing is downloaded. The exit status is
    1 if something that training needs is missing.
    """
    import json

    from ..reports.doctor import examine

    missing = False
    findings: list[Finding] = []
    section = ""

    def say(*parts: str) -> None:
        try:
            console.tell(*parts)
        except BrokenPipeError:
            # The reader has closed the pipe; the exit status still says if something is missing.
            console.drop_output()

    for finding in examine(data_dir, runs_dir):
        missing = missing or finding.state == "missing"
        if as_json:
            findings.append(finding)
            continue
        if finding.section != section:
            say(("\n" if section else "") + finding.section)
            section = finding.section
        say(*_line(finding))
    if as_json:
        shown = {"ready": not missing, "findings": [vars(finding) for finding in findings]}
        console.say(json.dumps(shown, indent=1))
    else:
        say()
        say("something is missing: see above" if missing else "ready to train")
    return 1 if missing else 0


def _line(finding: Finding) -> tuple[str, str]:
    """The mark, and the text after it."""
    from ..common.printable import paragraph

    mark = {"ok": " ", "note": "!", "missing": "X"}[finding.state]
    if finding.state == "missing":
        mark = console.coloured(mark, "red", sys.stdout)
    lines = [f" {finding.name:<{_LEFT - 2}}{finding.value}"]
    return mark, paragraph([*lines, *([f"{'':<{_LEFT}}{finding.advice}"] * bool(finding.advice))])
