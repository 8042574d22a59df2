"""``dnnstack train --seeds N`` and ``--folds K``: a group of runs, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..common.printable import printable
from . import console, plugins
from .options import Decorator, all_of
from .signals import StopSignals

if TYPE_CHECKING:
    from ..configs import LoadedConfig
    from ..training.groups.group import Member
    from ..training.groups.planned import Planned
    from ..training.records.resume import Resume

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
)


def planned(
    seeds: int | None, folds: int | None, stratified: bool, ranks: int | None
) -> Planned | None:
    """The group that the options describe, if they do. Raises UsageError."""
    if seeds is not None and folds is not None:
        raise click.UsageError("--seeds and --folds cannot be used together")
    if stratified and folds is None:
        raise click.UsageError("--stratified needs --folds")
    if seeds is None and folds is None:
        return None
    if ranks is not None:
        name = "--seeds" if folds is None else "--folds"
        raise click.UsageError(f"{name} and --ranks cannot be used together")
    from ..training.groups.planned import Planned as Made

    return Made("folds", folds, stratified) if folds else Made("seeds", seeds or 0)


def train(
    wanted: Planned,
    reference: str,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    resume: str | None,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
    ending: str,
    again: Callable[[str], str],
) -> int:
    """Train the runs of a group and print their table; ``again`` gives the command to go on."""
    from ..common.errors import Interrupted
    from ..common.text import versions_text
    from ..configs import load_config
    from ..fitting import fit, open_device
    from ..reports.group_text import as_text
    from ..reports.plots import draw_curves
    from ..reports.training_text import summary
    from ..training.groups.planned import check_planned, settings_of, train_members
    from ..training.groups.statistics import report_group
    from ..training.interrupt import NOTHING_SAVED
    from ..training.listener import Summary
    from . import downloading, progress

    def loaded(*settings: str) -> LoadedConfig:
        return load_config(reference, (*overrides, *settings), plugins.opened(plugin))

    with StopSignals(ending) as stop:
        path = None
        try:
            with stop.raising(Interrupted(NOTHING_SAVED)):
                base = loaded()
            check_planned(wanted, base.config)
            backend = open_device(base, resume is not None, not no_graph, console.note)
            if resume is None:
                path = wanted.begin(base.config)
            else:
                path = wanted.go_on(base.config, None if resume == "latest" else resume)
            found = "ships with the package" if base.packaged else printable(base.path)
            progress.remark(f"config      {base.config.name} ({found})")
            progress.remark(f"device      {backend.name}: {versions_text(backend.versions())}")
            progress.remark(f"group       {printable(path)}")

            folder = path

            def one(member: Member, resumed: Resume | None) -> Summary:
                listener = progress.listener()
                with closing(listener):
                    return fit(
                        loaded(*settings_of(folder, member)),
                        backend,
                        resumed,
                        listener=listener,
                        stop_requested=stop.requested,
                        data_dir=data_dir,
                        downloads=downloading.policy(offline),
                    )

            def begins(place: int, count: int, member: Member) -> None:
                progress.remark("")
                progress.remark(f"{member.name}: run {place} of {count}")

            failed = missed = False
            for member, done in train_members(path, one, console.note, begins):
                if not isinstance(done, Summary):
                    console.error(f"{member.name}: {done}")
                    failed = True
                    continue
                if not console.is_quiet():
                    progress.say(summary(done))
                draw_curves(done.run, console.note)
                missed |= done.state == "finished" and done.goal is False
                if done.state == "interrupted":
                    progress.say(again(str(path)))
                    return stop.exit_status
        except Interrupted as error:
            progress.say(str(error))
            if path is not None:
                progress.say(again(str(path)))
            return stop.exit_status
        progress.remark("")
        progress.say(as_text(report_group(path), console.width() or 80))
        progress.check_output()
    return 1 if failed else 3 if missed else stop.exit_status
