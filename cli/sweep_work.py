"""What a process of a sweep does: take trials and train them, until none is left."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..backends.ahead import NVIDIA_DRIVER
from ..backends.base import Backend
from ..backends.keeping import Keeping
from ..common.errors import BackendUnavailableError, DnnstackError
from ..common.machine import available_threads
from ..configs import LoadedConfig, RunConfig, placed
from ..configs.load import load_beside
from ..configs.plugins import Plugins
from ..configs.search import BLOCK, Search
from ..configs.validate import safe_name
from ..datasets import Downloads
from ..many.journal import Trial
from ..many.shelf import Shelf
from ..many.sweeping import (
    Pruning,
    Sweep,
    best_trials,
    settings_of_trial,
    values_of,
    write_best,
)
from ..reports.live_curves import LiveCurves
from ..training.assemble import data_folder
from ..training.fitting import fit, open_device
from ..training.interrupt import interruptible
from ..training.listener import Summary
from ..training.records.resume import Resume
from .sweep_screen import Heard
from .workers import Said, Say


def count_of_workers(wanted: int | None, config: RunConfig, search: Search) -> int:
    """How many processes: by default one on a GPU, and on a CPU as many as fit, at most one for
    each trial."""
    device, threads = config.run.device, config.run.threads
    on_gpu = device == "cuda" or (device == "auto" and NVIDIA_DRIVER.exists())
    count = wanted or (1 if on_gpu else max(1, available_threads() // (threads or 1)))
    limits = [search.trials, len(search.grid()) if search.sampler == "grid" else None]
    return min(count, *(limit for limit in limits if limit is not None), count)


@dataclass(frozen=True)
class Job:
    """All that a process needs to take part in a sweep; ``count``: of processes side by side."""

    changes: Sequence[str]
    code: Callable[[], Plugins]
    base: LoadedConfig
    search: Search
    capture: bool
    data_dir: Path | None
    downloads: Downloads
    count: int
    same_samples: bool = False
    data: Shelf = field(default_factory=Shelf)

    @property
    def threads(self) -> int:
        """Threads of each process."""
        return self.base.config.run.threads or max(1, available_threads() // self.count)

    def loaded(self, settings: Sequence[str]) -> LoadedConfig:
        """The config of a trial."""
        changes = (*self.changes, *settings)
        return load_beside(self.base, BLOCK, changes, self.code())[0]

    def device(self, notice: Callable[[str], None]) -> Backend:
        """The device of the config. Raises BackendUnavailableError."""
        threads = self.threads if self.count > 1 else None
        return Keeping(open_device(self.base, False, self.capture, notice, threads))

    def try_device(self) -> None:
        """See ``try_device``."""
        try_device(self.base, lambda: self.device(lambda text: None))

    def read_data(self, stop_requested: Callable[[], bool]) -> None:
        """See ``read_data``."""
        read_data(self.base, self.data, self.data_dir, self.downloads, stop_requested)

    def work(
        self,
        sweep: Sweep,
        say: Say,
        note: Callable[[str], None],
        ends: Callable[[], bool],
        backend: Backend | None = None,
    ) -> None:
        """Take trials until none is left or ``ends`` says so, which is asked again and again.

        ``backend``: by default opened here. Raises DnnstackError.
        """
        sweep = replace(sweep, stop_requested=ends)
        device = backend or self.device(note)

        def train(
            trial: Trial, resumed: Resume | None, decide: Callable[[], bool]
        ) -> tuple[Summary, bool]:
            heard = Pruning(Heard(trial.number, say, note), decide)

            done = fit(
                self.loaded(settings_of_trial(sweep.path, trial)),
                device,
                resumed,
                listener=LiveCurves(heard),
                stop_requested=lambda: ends() or heard.pruned,
                data_dir=self.data_dir,
                downloads=self.downloads,
                load=self.data,
                same_samples=self.same_samples,
            )
            return done, heard.pruned

        def begins(trial: Trial) -> None:
            say(Said("begun", trial.number))

        def ended(trial: Trial) -> None:
            best = best_trials(self.search, sweep.journal.read())
            if best and best[0].number == trial.number:
                self.write_best(sweep, trial)

        for trial in sweep.run(train, note, begins, ended):
            say(Said("ended", trial.number))
            if ends():
                return
        with nullcontext() if ends() else sweep.journal.alone(ends):
            # A kill may have come between the record of the best trial and its config.
            best = best_trials(self.search, sweep.journal.read())
            if best:
                self.write_best(sweep, best[0])

    def write_best(self, sweep: Sweep, trial: Trial) -> None:
        """The config of the best trial, ready to train. Raises CheckpointError."""
        own = f"name={safe_name(self.base.config.name + '-best')}"
        write_best(sweep.path, self.loaded([*values_of(trial), own]).config)


def try_device(base: LoadedConfig, opened: Callable[[], object]) -> None:
    """Open the device in a process of its own, for one that is open here is lost to workers.

    Raises BackendUnavailableError. Only a GPU is tried: the others are always there.
    """
    if base.config.run.device != "cuda":
        return
    ours, theirs = os.pipe()
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.close(ours)
            opened()
            status = 0
        except DnnstackError as error:
            os.write(theirs, str(error).encode()[: select.PIPE_BUF])
        finally:
            os._exit(status)
    os.close(theirs)
    with open(ours, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    os.waitpid(pid, 0)
    if said:
        raise BackendUnavailableError(said)


def read_data(
    base: LoadedConfig,
    data: Shelf,
    data_dir: Path | None,
    downloads: Downloads,
    stop_requested: Callable[[], bool],
) -> None:
    """Read the training set, which processes that are forked from this one then share.

    Raises DatasetError, Interrupted.
    """
    config = base.config
    root = data_folder(config, data_dir, config.data.root, "")
    with placed(base):
        interruptible(lambda: data(config, "train", root, downloads), stop_requested)
