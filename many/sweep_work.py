"""What a process of a sweep does: take trials and train them, until none is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..backends.ahead import NVIDIA_DRIVER
from ..backends.base import Backend
from ..common.errors import DatasetError, explaining
from ..common.files import atomic_write
from ..common.machine import available_threads
from ..configs import RunConfig, effective_yaml, parse_config
from ..configs.search import Search
from ..configs.validate import safe_name
from ..training.assemble import describe_data
from ..training.listener import Summary
from ..training.records.group import read_group
from ..training.records.resume import Resume
from ..training.splits import settled
from .journal import Trial
from .planned import Planned, settings_of
from .screen import Heard, Said, Say
from .sweeping import BEST, Pruning, Sweep, best_trials, check_objective, open_sweep, values_of
from .trainings import Ends, Trainings


def count_of_workers(wanted: int | None, config: RunConfig, what: Search | Planned) -> int:
    """How many processes, at most one for each training: by default one for runs that are planned,
    and for trials one on a GPU, and on a CPU as many as fit."""
    if isinstance(what, Planned):
        return min(wanted or 1, what.count)
    search, device, threads = what, config.run.device, config.run.threads
    on_gpu = device == "cuda" or (device == "auto" and NVIDIA_DRIVER.exists())
    count = wanted or (1 if on_gpu else max(1, available_threads() // (threads or 1)))
    limits = [search.trials, len(search.grid()) if search.sampler == "grid" else None]
    return min(count, *(limit for limit in limits if limit is not None), count)


def run_sweep(trainings: Trainings, search: Search) -> Path:
    """Begin a sweep, or go on with one, and train its trials.

    Returns its folder once its budget is used up or it was stopped. Raises DnnstackError.
    """
    backend = trainings.prepared()
    with suppress(DatasetError):
        check_objective(search, describe_data(trainings.base.config).kind)
    path = open_sweep(trainings.base.config, search, trainings.resume)
    sweep = Sweep(path, search, trainings.stop)
    trainings.screen.opening(path, backend, trainings.count, trainings.threads)
    trainings.side_by_side(partial(_work, trainings, sweep), backend, sweep.give_up)
    return path


def _work(trainings: Trainings, sweep: Sweep, say: Say, ends: Ends, device: Backend) -> None:
    """Take trials until none is left or ``ends`` says so, which is asked again and again."""
    sweep, notice = replace(sweep, stop_requested=ends), trainings.screen.notice

    def train(
        trial: Trial, resumed: Resume | None, decide: Callable[[], bool]
    ) -> tuple[Summary, bool]:
        heard = Pruning(Heard(trial.number, say, notice), decide)
        settings = settings_of(sweep.path, trial.name, values_of(trial))
        done = trainings.train(settings, resumed, device, heard, ends)
        return done, heard.pruned

    def begins(trial: Trial) -> None:
        say(Said("begun", trial.number))

    def note_best(*_: Trial) -> None:
        for trial in best_trials(sweep.search, sweep.journal.read())[:1]:
            _write_best(trainings, sweep, trial)

    for trial in sweep.run(train, notice, begins, note_best):
        say(Said("ended", trial.number))
        if ends():
            return
    with nullcontext() if ends() else sweep.journal.alone(ends):
        # A kill may have come between the record of the best trial and its config.
        note_best()


def _write_best(trainings: Trainings, sweep: Sweep, trial: Trial) -> None:
    """The config of the best trial, ready to train. Raises CheckpointError."""
    own = f"name={safe_name(trainings.base.config.name + '-best')}"
    config = trainings.loaded([*values_of(trial), own]).config
    if not config.data.batch_size:
        config = settled(config, parse_config(read_group(sweep.path).config, str(sweep.path)))
    path = sweep.path / BEST
    with explaining(path, "cannot be written"):
        atomic_write(path, effective_yaml(config).encode())
