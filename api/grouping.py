"""Training several runs from a program: seeds, and the folds of a cross-validation."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing

from .arguments import path_or_none, path_text, whole
from .backends.keeping import Keeping
from .backends.select import Device
from .callbacks import Callback, Logs, Told, as_callbacks
from .common.errors import Interrupted, UsageError
from .datasets import Downloads
from .fitting import Config, Overrides, changed, interrupts, print_text, read_config, teller
from .many.planned import Planned, check_planned, settings_of, train_members
from .many.shelf import Shelf
from .many.statistics import GroupReport, report_group
from .reports.live_curves import LiveCurves
from .training.fitting import fit, open_device
from .training.listener import Summary
from .training.records.group import Member
from .training.records.resume import Resume
from .wording import in_python


@in_python
def train_group(
    config: Config,
    *,
    seeds: int | None = None,
    folds: int | None = None,
    stratified: bool = False,
    overrides: Overrides = (),
    callbacks: Sequence[Callback | Callable[[Logs], object]] = (),
    resume: bool | str | os.PathLike[str] = False,
    same_samples: bool = False,
    device: Device | None = None,
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    verbose: bool = False,
) -> GroupReport:
    """Train a config with several seeds or on several folds, as ``train --seeds`` and ``--folds``.

    Give either ``seeds`` or ``folds``; the other arguments are those of ``train``; resume: True for
    the latest group of the config, "auto" for the same if there is one, or a group. Returns the
    outcome of every run, with mean and deviation; a run that diverged is among them, not finished.
    Raises DnnstackError, and KeyboardInterrupt after Ctrl-C.
    """
    if (seeds is None) == (folds is None):
        raise TypeError("train_group() takes either seeds or folds")
    if folds is None and stratified:
        raise TypeError("stratified needs folds")
    wanted_as = "folds" if seeds is None else "seeds"
    count = whole(wanted_as, folds if seeds is None else seeds)
    if count is None or count < 2:
        raise UsageError(f"{wanted_as}: expected at least 2, because a group has several runs")
    named = None if isinstance(resume, bool) else path_text("resume", resume)
    folder = path_or_none("data_dir", data_dir)
    wanted = Planned("seeds" if folds is None else "folds", count, stratified)
    changes = changed(overrides, device, threads, runs_dir)
    base = read_config(config, changes)
    check_planned(wanted, base.config)
    say = teller(verbose)
    backend = Keeping(open_device(base, resume is not False, True, say))
    if resume is False:
        path = wanted.begin(base.config)
    else:
        path = wanted.go_on(base.config, named)
    data = Shelf()
    with closing(backend), interrupts() as interrupted:

        def one(member: Member, resumed: Resume | None) -> Summary:
            heard = Told(as_callbacks(callbacks), say, print_text if verbose else None)
            return fit(
                read_config(base if base.text else config, [*changes, *settings_of(path, member)]),
                backend,
                resumed,
                listener=LiveCurves(heard),
                stop_requested=interrupted.is_set,
                data_dir=folder,
                downloads=Downloads(offline=True) if offline else None,
                load=data,
                same_samples=same_samples,
            )

        try:
            for member, done in train_members(path, one, say):
                if not isinstance(done, Summary):
                    say(f"{member.name}: {done}")
        except Interrupted as error:
            if not interrupted.is_set():
                raise
            raise KeyboardInterrupt(str(error)) from None
        if interrupted.is_set():
            raise KeyboardInterrupt(
                f"training was interrupted and saved; continue with resume={str(path)!r}"
            )
    return report_group(path)
