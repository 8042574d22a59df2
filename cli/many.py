"""``dnnstack train --seeds N`` and ``--folds K``: the runs of a group."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..common.machine import available_threads
from ..common.printable import printable
from . import console, plugins, together
from .options import Decorator, all_of
from .signals import StopSignals

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..configs import LoadedConfig
    from ..training.groups.group import Member
    from ..training.groups.planned import Planned
    from ..training.listener import Listener
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
    click.option(
        "--workers",
        type=click.IntRange(min=1, max=1024),
        metavar="N",
        help="With --seeds or --folds: train N runs at a time, each in a process with its share of "
        "the cores; default: 1, but on a GPU several of them in this process once the first run "
        "has shown that it takes less time.",
    ),
    together.option,
)


def planned(
    seeds: int | None,
    folds: int | None,
    stratified: bool,
    workers: int | None,
    ranks: int | None,
) -> Planned | None:
    """The group that the options describe, if they do. Raises UsageError."""
    if seeds is not None and folds is not None:
        raise click.UsageError("--seeds and --folds cannot be used together")
    if stratified and folds is None:
        raise click.UsageError("--stratified needs --folds")
    if seeds is None and folds is None:
        if workers is not None:
            raise click.UsageError("--workers needs --seeds or --folds")
        return None
    if ranks is not None:
        name = "--seeds" if folds is None else "--folds"
        raise click.UsageError(f"{name} and --ranks cannot be used together")
    from ..training.groups.planned import Planned as Made

    return Made("folds", folds, stratified) if folds else Made("seeds", seeds or 0)


def train(
    wanted: Planned,
    workers: int | None,
    in_one_process: bool,
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
    from ..backends.keeping import Keeping
    from ..common.errors import Interrupted
    from ..common.text import versions_text
    from ..configs import load_config
    from ..fitting import fit, open_device
    from ..reports.drawings import Drawings
    from ..reports.group_text import as_text
    from ..reports.training_text import summary
    from ..training.groups.planned import check_planned, settings_of, train_members
    from ..training.groups.shelf import Shelf
    from ..training.groups.statistics import report_group
    from ..training.interrupt import NOTHING_SAVED
    from ..training.listener import Summary
    from . import downloading, progress
    from .side_by_side import Ended, train_side_by_side
    from .sweep_work import read_data, try_device

    def opened(threads: int | None = None) -> Backend:
        made = open_device(base, resume is not None, not no_graph, console.note, threads)
        return Keeping(made)

    with StopSignals(ending) as stop, ExitStack() as stack:
        path = None
        try:
            with stop.raising(Interrupted(NOTHING_SAVED)):
                base = load_config(reference, overrides, plugins.opened(plugin))
            check_planned(wanted, base.config)
            count, data = min(workers or 1, wanted.count), Shelf()
            threads = base.config.run.threads or max(1, available_threads() // count)
            backend = opened() if count == 1 or in_one_process else None
            if backend is not None and in_one_process:
                together.check_together(backend.name, workers)
            if backend is None:
                # Forked later, a worker could not use a device that is open here.
                try_device(base, opened)
                read_data(base, data, data_dir, downloading.policy(offline), stop.requested)
            if resume is None:
                path = wanted.begin(base.config)
            else:
                path = wanted.go_on(base.config, None if resume == "latest" else resume)
            found = "ships with the package" if base.packaged else printable(base.path)
            progress.remark(f"config      {base.config.name} ({found})")
            if backend is not None:
                progress.remark(f"device      {backend.name}: {versions_text(backend.versions())}")
            if backend is None:
                progress.remark(f"workers     {count}, threads of each: {threads}")
            elif count > 1:
                progress.remark(f"workers     {count}, in one process")
            progress.remark(f"group       {printable(path)}")
            folder = path
            apart = backend is not None and backend.name == "cuda"
            drawings = stack.enter_context(Drawings(console.note, apart))

            def one(
                member: Member,
                resumed: Resume | None,
                listener: Listener,
                ends: Callable[[], bool],
                device: Backend,
            ) -> Summary:
                changes = (*overrides, *settings_of(folder, member))
                done = fit(
                    load_config(base, changes, plugins.opened(plugin)),
                    device,
                    resumed,
                    listener=listener,
                    stop_requested=ends,
                    data_dir=data_dir,
                    downloads=downloading.policy(offline),
                    load=data,
                )
                drawings.draw(done.run)
                return done

            def alone(member: Member, resumed: Resume | None) -> Summary:
                assert backend is not None
                with closing(progress.listener()) as listener:
                    return one(member, resumed, listener, stop.requested, backend)

            def begins(place: int, count: int, member: Member) -> None:
                progress.remark("")
                progress.remark(f"{member.name}: run {place} of {count}")

            ended, failed, side_by_side = Ended(), set[str](), backend is None or count > 1
            if not side_by_side:
                with closing(train_members(path, alone, console.note, begins)) as runs:
                    for member, done in runs:
                        if not isinstance(done, Summary):
                            console.error(f"{member.name}: {done}")
                            failed.add(member.name)
                            continue
                        if not console.is_quiet():
                            progress.say(summary(done))
                        ended.interrupted = done.state == "interrupted"
                        ended.missed |= done.state == "finished" and done.goal is False
                        if workers is None and done.state == "finished" and backend is not None:
                            left, seconds = together.left_of(path, failed), done.training_seconds
                            layers = partial(_layers, base, data_dir)
                            count = together.worth(backend.name, len(left), seconds, layers)
                        if count > 1:
                            progress.remark("")
                            what = f"{left[0]} to {left[-1]}, {count} of them at a time"
                            progress.remark(f"together    {what}, for that takes less time")
                            side_by_side = True
                            break
                ended.failed = bool(failed)
            if side_by_side:
                name = None if backend is None else backend.name
                rest = train_side_by_side(
                    path, count, lambda: partial(one, device=opened(threads)), stop, name, failed
                )
                # It looks at all runs of the group.
                ended = replace(rest, failed=rest.failed or bool(failed))
            if ended.interrupted:
                progress.say(again(str(path)))
                return stop.exit_status
        except Interrupted as error:
            progress.say(str(error))
            if path is not None:
                progress.say(again(str(path)))
            return stop.exit_status
        stack.close()
        progress.remark("")
        progress.say(as_text(report_group(path), console.width() or 80))
        if not ended.failed:
            words = ["dnnstack", "eval", "--ensemble", str(path), *plugins.words_of(base.config)]
            progress.remark(f"next        {shlex.join(words)}")
        progress.check_output()
    return 1 if ended.failed else 3 if ended.missed else stop.exit_status


def _layers(loaded: LoadedConfig, data_dir: Path | None) -> int:
    """Layers of the config's network, those inside of others included."""
    from ..layers.composite import walk
    from ..training.assemble import build_network, data_folder, describe_data

    config = loaded.config
    info = describe_data(config, data_folder(config, data_dir, config.data.root))
    return sum(1 for _ in walk(build_network(config, info).layers))
