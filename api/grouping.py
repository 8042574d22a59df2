"""Many trainings from a program: seeds, the folds of a cross-validation, the trials of a sweep."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .arguments import path_or_none, path_text, whole
from .backends.select import Device
from .common.errors import Interrupted, UsageError
from .fitting import Config, Overrides, changed, interrupts, print_text, teller
from .given import given_arrays
from .many.sampling import need_optuna
from .many.screen import Screen
from .many.statistics import GroupReport, report_group
from .reports.callbacks import Callback, Logs, Told, as_callbacks
from .reports.loggers import Logged
from .reports.sweep_report import SweepReport, report_sweep
from .several import Call, train_apart
from .training.listener import Listener
from .training.records.runs import LATEST
from .wording import in_python


@in_python
def train_group(
    config: Config,
    *,
    seeds: int | None = None,
    folds: int | None = None,
    stratified: bool = False,
    workers: int = 1,
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
    **arrays: Any,
) -> GroupReport:
    """Train a config with several seeds or on several folds, as ``train --seeds`` and ``--folds``.

    Give either ``seeds`` or ``folds``. workers: runs at a time, each in a process with its share of
    the cores; callbacks and arrays need 1. The other arguments are those of ``train``, with its
    ``arrays``: data, validation, kind, classes, axes; resume: True for the latest group of the
    config, "auto" for the same if there is one, or a group. Returns the outcome of every run, with
    mean and deviation; a run that diverged is among them, not finished.
    Raises DnnstackError, and KeyboardInterrupt after Ctrl-C.
    """
    if (seeds is None) == (folds is None):
        raise TypeError("train_group() takes either seeds or folds")
    if folds is None and stratified:
        raise TypeError("stratified needs folds")
    parts = "folds" if seeds is None else "seeds"
    count = whole(parts, folds if seeds is None else seeds)
    if count is None or count < 2:
        raise UsageError(f"{parts}: expected at least 2, because a group has several runs")
    heard = as_callbacks(callbacks)
    if heard and _workers(workers) != 1:
        raise UsageError("callbacks: expected none with workers, which are other processes")
    settings, load = given_arrays(**arrays)
    call = Call(
        config,
        [*changed(overrides, device, threads, runs_dir), *settings],
        (parts, count, stratified),
        _resumed(resume),
        _workers(workers) or 1,
        same_samples,
        _folder(data_dir),
        offline,
        load,
    )
    say = teller(verbose)
    return report_group(
        trained(call, say, lambda: Told(heard, say, print_text if verbose else None))
    )


@in_python
def sweep(
    config: str | os.PathLike[str],
    *,
    workers: int | None = None,
    overrides: Overrides = (),
    resume: bool | str | os.PathLike[str] = False,
    same_samples: bool = False,
    device: Device | None = None,
    threads: int | None = None,
    runs_dir: str | os.PathLike[str] | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    offline: bool = False,
    verbose: bool = False,
    **arrays: Any,
) -> SweepReport:
    """Search for the best values of a config's keys, as ``dnnstack sweep`` does.

    config: a file with a block ``search``, or the name of a packaged one. workers: trials at a
    time, each in a process with its share of the cores; by default as many as cores, on a GPU 1.
    resume: True for the latest sweep of the config, "auto" for the same if there is one, or a
    sweep. The other arguments are those of ``train``, with its ``arrays``, which need one worker.
    Returns the trials, the best ones and the importance of each key. Raises DnnstackError, and
    KeyboardInterrupt after Ctrl-C.
    """
    need_optuna()
    settings, load = given_arrays(**arrays)
    call = Call(
        path_text("config", config),
        [*changed(overrides, device, threads, runs_dir), *settings],
        None,
        _resumed(resume),
        _workers(workers),
        same_samples,
        _folder(data_dir),
        offline,
        load,
    )
    return report_sweep(trained(call, teller(verbose), Listener))


def _workers(workers: int | None) -> int | None:
    count = whole("workers", workers)
    if count is not None and not 1 <= count <= 1024:
        raise UsageError(f"workers: expected a whole number from 1 to 1024 (got {count})")
    return count


def _resumed(resume: bool | str | os.PathLike[str]) -> str | None:
    if isinstance(resume, bool):
        return LATEST if resume else None
    return path_text("resume", resume)


def _folder(data_dir: str | os.PathLike[str] | None) -> str | None:
    found = path_or_none("data_dir", data_dir)
    return None if found is None else str(found)


def trained(call: Call, say: Callable[[str], None], listener: Callable[[], Listener]) -> Path:
    """The folder of what the call has trained. Raises KeyboardInterrupt after Ctrl-C."""
    screen = Screen(say, listener, Logged)
    with interrupts() as interrupted:
        try:
            if call.count() > 1 and call.load:
                raise UsageError(
                    "workers: the arrays are in this process, and workers are others; give "
                    "workers=1, or save the arrays with numpy.savez and name the file in the config"
                )
            if call.count() > 1:
                path = train_apart(call, say, interrupted.is_set)
            else:
                path = call.train(screen, interrupted.is_set)
        except Interrupted as error:
            if not interrupted.is_set():
                raise
            raise KeyboardInterrupt(str(error)) from None
        if interrupted.is_set():
            raise KeyboardInterrupt(
                f"training was interrupted and saved; continue with resume={str(path)!r}"
            )
    return path
