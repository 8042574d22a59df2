"""``dnnstack train --seeds N`` and ``--folds K``: the runs of a group."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import ExitStack, closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..common.machine import available_threads
from ..common.printable import printable
from ..training.signals import StopSignals
from . import console, plugins, together
from .options import Decorator, all_of

if TYPE_CHECKING:
    from ..backends.base import Backend
    from ..configs import LoadedConfig
    from ..many.planned import Planned
    from ..training.listener import Listener, Summary
    from ..training.records.group import Member
    from ..training.records.resume import Resume
    from .side_by_side import Ended

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
    from ..many.planned import Planned as Made

    return Made("folds", folds, stratified) if folds else Made("seeds", seeds or 0)


def train(
    wanted: Planned,
    workers: int | None,
    in_one_process: bool,
    reference: str,
    overrides: tuple[str, ...],
    plugin: tuple[Path, ...],
    resume: str | None,
    same_samples: bool,
    no_graph: bool,
    data_dir: Path | None,
    offline: bool,
    ending: str,
    again: Callable[[str], str],
) -> int:
    """Train the runs of a group and print their table; ``again`` gives the command to go on."""
    from ..backends.keeping import Keeping
    from ..common.errors import DnnstackError, Interrupted
    from ..common.text import versions_text
    from ..configs import load_config
    from ..many.group import lock_group
    from ..many.planned import check_planned, settings_of
    from ..many.shelf import Shelf
    from ..many.statistics import report_group
    from ..reports.drawings import Drawings
    from ..reports.group_text import as_text
    from ..reports.live_curves import LiveCurves
    from ..training.fitting import fit, open_device
    from ..training.interrupt import NOTHING_SAVED
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
            drawings.make_up(path)

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
                    listener=LiveCurves(listener),
                    stop_requested=ends,
                    data_dir=data_dir,
                    downloads=downloading.policy(offline),
                    load=data,
                    same_samples=same_samples,
                )
                drawings.draw(done.run)
                return done

            def alone(member: Member, resumed: Resume | None) -> Summary:
                assert backend is not None
                with closing(progress.listener()) as listener:
                    return one(member, resumed, listener, stop.requested, backend)

            failed, spreads = set[str](), workers is None and backend is not None
            layers = partial(_layers, base, data_dir)
            held = lock_group(path)
            with nullcontext() if held is None else held:
                ended = Ended()
                if backend is not None and count == 1:
                    spread = partial(together.worth, backend.name, path, failed, layers)
                    ended, count = _in_turn(path, alone, failed, spread if spreads else _one)
                if backend is None or count > 1:
                    where = None if backend is None else backend.name
                    try:
                        rest = train_side_by_side(
                            path, count, lambda: partial(one, device=opened(threads)), stop, where,
                            failed,
                        )  # fmt: skip
                    except DnnstackError as error:
                        if not spreads or isinstance(error, Interrupted):
                            raise
                        # Nobody has asked for it, and alone there is more memory.
                        console.note(f"{error}; the runs left are trained one after the other")
                        rest, _ = _in_turn(path, alone, failed, _one)
                    missed, bad = ended.missed or rest.missed, bool(failed) or rest.failed
                    ended = replace(rest, missed=missed, failed=bad)
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
    return 1 if ended.failed else 3 if ended.missed else stop.exit_status


def _in_turn(
    path: Path,
    train: Callable[[Member, Resume | None], Summary],
    failed: set[str],
    spread: Callable[[], tuple[int, list[str]]],
) -> tuple[Ended, int]:
    """How the runs ended that were trained one after the other, and how many to train at a time
    from then on; the names of those that fail are added to ``failed``.

    Those that have failed before are left out. ``spread`` is asked before each run, and gives this
    number and the names of the runs left.
    """
    from ..many.claims import Taken
    from ..many.planned import train_members
    from ..reports.training_text import summary
    from ..training.listener import Summary
    from ..training.records.group import read_group
    from . import progress
    from .side_by_side import Ended, take

    def begins(place: int, count: int, member: Member) -> None:
        progress.remark("")
        progress.remark(f"{member.name}: run {place} of {count}")

    # The group is locked already.
    ended, claims = Ended(), Taken()
    take(claims, read_group(path).members, failed)
    with closing(train_members(path, train, console.note, begins, claims)) as runs:
        while not ended.interrupted:
            count, left = spread()
            if count > 1:
                progress.remark("")
                what = f"the {len(left)} runs left, {count} at a time"
                progress.remark(f"together    {what}; --workers 1 trains them in turn")
                return ended, count
            place = next(runs, None)
            if place is None:
                break
            member, done = place
            if not isinstance(done, Summary):
                console.error(f"{member.name}: {done}")
                failed.add(member.name)
                continue
            if not console.is_quiet():
                progress.say(summary(done))
            ended.interrupted = done.state == "interrupted"
            ended.missed |= done.state == "finished" and done.goal is False
    return replace(ended, failed=bool(failed)), 1


def _one() -> tuple[int, list[str]]:
    """One run at a time, to the end."""
    return 1, []


def _layers(loaded: LoadedConfig, data_dir: Path | None) -> int:
    """Layers of the config's network, those inside of others included."""
    from ..layers.composite import walk
    from ..training.assemble import build_network, data_folder, describe_data

    config = loaded.config
    info = describe_data(config, data_folder(config, data_dir, config.data.root))
    return sum(1 for _ in walk(build_network(config, info).layers))
