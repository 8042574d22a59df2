"""``--seeds``, ``--folds``, ``--workers`` and ``--together``: several trainings of one config."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..training.signals import ENDING, StopSignals
from . import console, plugins
from .asked import Asked, line
from .options import Decorator, all_of

if TYPE_CHECKING:
    from ..many.planned import Planned

together: Decorator = click.option(
    "--together",
    is_flag=True,
    help="With --workers N, on a GPU: the N trainings run in one process and share the GPU's "
    "processors, instead of taking turns; for small networks.",
)

option: Decorator = all_of(
    click.option(
        "--seeds",
        type=click.IntRange(min=2),
        metavar="N",
        help="Train N runs whose seeds count up from the config's, on the same validation "
        "samples, and show mean, deviation, minimum and maximum.",
    ),
    click.option(
        "--folds",
        type=click.IntRange(min=2),
        metavar="K",
        help="Cross-validation: train K runs, each validated on another of K parts of the training "
        "set, and show mean and deviation.",
    ),
    click.option(
        "--stratified",
        is_flag=True,
        help="With --folds: every part has the same share of each class.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(min=1, max=1024),
        metavar="N",
        help="With --seeds or --folds: train N runs at a time, each in a process with its share of "
        "the cores; default: 1, but on a GPU several of them in this process if the first run "
        "shows that the others take long enough.",
    ),
    together,
)


def planned(
    seeds: int | None,
    folds: int | None,
    stratified: bool,
    ranks: int | None,
    asked: Asked,
) -> Planned | None:
    """The group that the options describe, if they do. Raises UsageError."""
    if seeds is not None and folds is not None:
        raise click.UsageError("--seeds and --folds cannot be used together")
    if stratified and folds is None:
        raise click.UsageError("--stratified needs --folds")
    if seeds is None and folds is None:
        given = {"--workers": asked.workers is not None, "--together": asked.together}
        for name in given:
            if given[name]:
                raise click.UsageError(f"{name} needs --seeds or --folds")
        return None
    if ranks is not None:
        name = "--seeds" if folds is None else "--folds"
        raise click.UsageError(f"{name} and --ranks cannot be used together")
    from ..many.planned import Planned as Made

    return Made("folds", folds, stratified) if folds else Made("seeds", seeds or 0)


def train(asked: Asked, wanted: Planned) -> int:
    """Train the runs of a group and print their table."""
    from ..common.errors import Interrupted
    from ..configs import load_config
    from ..many.side_by_side import Ended, train_group
    from ..many.statistics import report_group
    from ..reports.group_text import as_text
    from ..reports.tables import WIDTH
    from ..training.signals import NOTHING_SAVED
    from . import progress
    from .group_screen import GroupScreen

    with StopSignals("" if console.is_quiet() else ENDING) as stop, GroupScreen() as screen:
        try:
            with stop.raising(Interrupted(NOTHING_SAVED)):
                code = plugins.opened(asked.plugin)
                base = screen.base = load_config(asked.reference, asked.changes, code)
            trainings = asked.trainings(base, wanted, screen, stop.requested)
            path, ended = train_group(trainings, wanted, spreads=asked.workers is None)
        except Interrupted as error:
            progress.say(str(error))
            ended = Ended(interrupted=True)
        if ended.interrupted:
            if screen.path is not None:
                words = [f"--{wanted.kind}", str(wanted.count)]
                words += [*["--stratified"] * wanted.stratified]
                progress.say(asked.again("train", words, str(screen.path)))
            return stop.exit_status
    progress.remark("")
    progress.say(as_text(report_group(path), console.width() or WIDTH))
    if not ended.failed:
        words = ["eval", "--ensemble", str(path), *plugins.words_of(base.config)]
        progress.remark(line("next", *words))
    return 1 if ended.failed else 3 if ended.missed else stop.exit_status
