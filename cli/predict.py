"""``dnnstack predict``: what a trained network sees in picture files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import completion, console, ensembles, options, plugins, predict_rows

if TYPE_CHECKING:
    from ..classifier import Classifier
    from ..common.targets import Kind
    from ..training.inference.predict import Prediction

_UNREADABLE, _NOT_SURE = 1, 3
"""Exit statuses: a picture could not be read; an answer is less likely than was asked for."""


@click.command(
    short_help="Classify pictures.",
    epilog=options.examples(
        "dnnstack predict 5.png",
        "dnnstack predict --run lenet scans/ '2024-*/**/*.jpg'",
        "dnnstack predict --short scans/",
        "dnnstack predict --ensemble lenet,lenet-2 5.png",
        "dnnstack predict --json photo.jpg --save-input seen",
        "dnnstack predict --run prices --csv houses.csv > answers.csv",
        "find . -name '*.png' | dnnstack predict --csv - > answers.csv",
    ),
)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", shell_complete=completion.files
)
@options.trained
@ensembles.option(fitted=False)
@options.plugin
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="K",
    help="Number of classes to print, the likeliest first; default: 3, in text all of up to 14.",
)
@click.option(
    "--min-probability",
    type=options.Share(),
    metavar="P",
    help="An answer of less than P, as in 0.9 or 90%, is not sure, and the exit status is then 3; "
    "default: 0.5 for a digit on its page, else 0, and no such exit status.",
)
@click.option(
    "--invert/--no-invert",
    default=None,
    help="Ink is dark on light, or light on dark; default: the border of the picture decides. "
    "For networks that do not classify digits, --invert turns light into dark.",
)
@click.option(
    "--raw",
    is_flag=True,
    help="Do not locate or crop a digit: scale the whole picture to the network's input.",
)
@options.size
@click.option(
    "--tta",
    type=click.Choice(options.VIEWS),
    default="none",
    show_default=True,
    help="Test-time augmentation: average over views of each picture.",
)
@click.option(
    "--save-input",
    "inputs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write what the network saw of each picture as a PNG into this folder.",
)
@click.option(
    "--short", is_flag=True, help="Print a line for each picture: its likeliest class, no chart."
)
@options.uncalibrated
@options.json_output("JSON Lines: one object for each picture")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a header, then a row per picture.")
@options.device("auto")
@options.no_graph
def predict(
    paths: tuple[str, ...],
    plugin: tuple[Path, ...],
    top: int | None,
    min_probability: float | None,
    invert: bool | None,
    raw: bool,
    size: str | None,
    inputs: Path | None,
    short: bool,
    as_json: bool,
    as_csv: bool,
    **network: Any,
) -> int:
    """Classify pictures: PNG, JPEG, GIF, BMP, TIFF, WEBP, PPM or HEIC of any size.

    A network of numbers answers with these, one of questions with yes or no to each.

    PATH is a file, a folder (all pictures below it), a quoted pattern, or - for paths on standard
    input, one per line. For digit networks, the digit is located on its page, or on a photograph of
    it. What is hardly one digit is "not sure", and what a calibrated network does not know, "none
    of these". An error names a picture that cannot be read, and the exit status is then 1. A
    network that was trained on a CSV file takes files with the same columns.
    """
    from ..common.errors import DatasetError
    from ..datasets import find_pictures
    from ..reports.predict_text import csv_row, wanted
    from ..training.inference.predict import InputFolder, columns

    _check_one({"--short": short, "--json": as_json, "--csv": as_csv})
    plugins.load(plugin)
    notes, model = _opened(network)
    if model.trained.checkpoint.provenance.columns is not None:
        return predict_rows.tell(model, _names(paths), top or 3, as_json, as_csv)
    folder, status = None if inputs is None else InputFolder(inputs), 0
    count = (top or 3) if as_json or as_csv else wanted(len(model.classes_), top)
    kind, familiar = model.trained.data.kind, model.knows_familiar
    _check_of_classes(kind, {"--top": top, "--min-probability": min_probability})
    best_first = top is not None or count < len(model.classes_)
    write = console.write if as_csv else console.say
    if as_csv:
        write(csv_row(columns(model.classes_, kind, familiar)))
    as_text = not (as_json or as_csv)
    colours = console.colours(sys.stdout) * (as_text and not short and _has_blocks())
    how: dict[str, Any] = {"invert": invert, "raw": raw, "min_probability": min_probability}
    for answer in model.predict_each(find_pictures(_names(paths)), top=count, size=size, **how):
        if isinstance(answer, DatasetError):
            console.error(str(answer))
            status = _UNREADABLE
            continue
        notes.tell()
        if min_probability is not None and not answer.sure:
            status = status or _NOT_SURE
        if short or colours:
            _tell(answer, short, best_first, colours)
        else:
            (console.tell if as_text else write)(_shown(answer, as_json, as_csv, best_first))
        if folder is not None:
            folder.save(answer)
    return status


def _opened(network: Mapping[str, Any]) -> tuple[console.HeldNotes, Classifier]:
    """The network, and what was noted of it."""
    notes = console.HeldNotes()
    with notes.told_on_error():
        return notes, ensembles.opened(**network, notice=notes)


def _check_of_classes(kind: Kind, given: Mapping[str, float | None]) -> None:
    """Raise UsageError for options of classes if the network answers something else."""
    from ..common.errors import UsageError
    from ..common.targets import named

    for name, value in given.items():
        if value is not None and kind in ("numbers", "yes_no"):
            raise UsageError(f"{name}: is for classes, but the network answers {named(kind)}")


def _check_one(chosen: Mapping[str, bool]) -> None:
    """Raise UsageError if several options are given of which each decides how answers look."""
    if sum(chosen.values()) > 1:
        together = " and ".join(option for option, given in chosen.items() if given)
        raise click.UsageError(f"{together} cannot be used together")


def _tell(answer: Prediction, short: bool, best_first: bool, colours: int) -> None:
    """Print an answer as a line, or in colours."""
    from ..common.printable import paragraph, printable
    from ..reports.predict_text import as_colours, headline
    from ..reports.tables import WIDTH

    path = printable(answer.path)
    if short:
        console.tell(paragraph([headline(answer, path)]))
        return
    parts = as_colours(answer, path, best_first, console.width() or WIDTH, colours)
    console.tell(*(console.Coloured(text) if ours else text for text, ours in parts))


def _names(paths: tuple[str, ...]) -> Iterator[str]:
    """The arguments, with ``-`` replaced by the lines of standard input."""
    from ..common.errors import UsageError
    from ..datasets.picture_kinds import HEAD, of_head

    for path in paths:
        if path != "-":
            yield path
            continue
        text = sys.stdin.buffer.read()
        if of_head(text[:HEAD]):
            raise UsageError(
                "-: standard input is a picture, but paths are read from it; give the path of a "
                "file with the picture"
            )
        # ``find -print0`` and similar commands terminate each path by a zero byte.
        lines = text.split(b"\0") if b"\0" in text else text.splitlines()
        names = [os.fsdecode(line) for line in lines if line.strip()]
        if not names:
            raise UsageError("-: standard input has no paths")
        yield from names


def _shown(answer: Prediction, as_json: bool, as_csv: bool, best_first: bool) -> str:
    import json

    from ..common.printable import printable
    from ..reports.predict_text import as_text, csv_row
    from ..reports.tables import WIDTH

    if as_json:
        return json.dumps(answer.to_json())
    if as_csv:
        row = csv_row(answer.to_row())
        # Not even a line break is ours here.
        return printable(row) if sys.stdout.isatty() else row
    width, drawn = console.width() or WIDTH, not sys.stdout.isatty()
    return as_text(answer, printable(answer.path), best_first, not _has_blocks(), width, drawn)


def _has_blocks() -> bool:
    """Whether standard output can show block characters."""
    try:
        "▀▄█▏▎▍▌▋▊▉…".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
