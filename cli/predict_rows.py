"""``dnnstack predict`` for a network that was trained on a table in a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from . import console

if TYPE_CHECKING:
    from ..classifier import Classifier

_UNREADABLE = 1
_OF_PICTURES = ("inputs", "invert", "raw", "size", "min_probability")


def tell(model: Classifier, paths: Iterable[str], top: int, as_json: bool, as_csv: bool) -> int:
    """Print the answers to the rows of files, and return the exit status. Raises UsageError."""
    from ..common.errors import DatasetError
    from ..reports.predict_text import csv_row

    _refuse(click.get_current_context())
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


def _refuse(ctx: click.Context) -> None:
    """Raise UsageError for an option that needs pictures."""
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name in _OF_PICTURES and source is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{parameter.opts[0]}: the network takes rows of a table, not pictures"
            )
