"""``dnnstack predict`` for a network that was trained on a table in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from . import console

if TYPE_CHECKING:
    from ..classifier import Classifier

_UNREADABLE = 1


def tell(model: Classifier, paths: Iterable[str], top: int, as_json: bool, as_csv: bool) -> int:
    """Print the answers to the rows of files, and return the exit status."""
    from ..common.errors import DatasetError
    from ..reports.predict_text import csv_row

    status, header = 0, None
    for path in paths:
        try:
            answers = model.predict_rows(Path(path))
        except DatasetError as error:
            console.error(str(error))
            status = _UNREADABLE
            continue
        if as_csv and header not in (None, answers.header()):
            console.error(f"{path}: has other columns than the file before; name it alone")
            status = _UNREADABLE
            continue
        if as_csv and header is None:
            header = answers.header()
            console.write(csv_row(header))
        for at in range(len(answers)):
            if as_csv:
                console.write(csv_row(answers.to_row(at)))
            elif as_json:
                console.write(json.dumps(answers.to_json(at)))
            else:
                console.tell(answers.to_text(at, top))
    return status


def refuse(given: dict[str, object]) -> None:
    """Raise UsageError for an option that needs pictures."""
    if used := [option for option, value in given.items() if value not in (None, False)]:
        raise click.UsageError(f"{used[0]}: the network takes rows of a table, not pictures")
