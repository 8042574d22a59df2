"""What a sweep shows while it runs: a line for each trial that ends, and how far the others are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

from ..common.cells import wrapped_lines
from ..many.journal import Trial
from ..many.sweeping import Sweep, best_trials
from ..reports.sweep_text import trial_line, value_text
from ..reports.training_text import of_epochs
from ..training.listener import Progress, Started
from . import console, progress
from .workers import Said, Say

_OFTEN = 0.5
_SHOWN = 4


def standing(under_way: Mapping[int, Said], name: Callable[[int], str]) -> list[str]:
    """How far each run is that is under way: the first few, and how many more there are."""
    parts = [
        f"{name(number)} epoch {of_epochs(said.epoch, said.epochs)}"
        if said.epochs
        else f"{name(number)} begins"
        for number, said in sorted(under_way.items())
    ]
    more = len(parts) - _SHOWN
    return [*parts[:_SHOWN], f"{more} more"] if more > 0 else parts


class Screen:
    """Shows trials of all processes of a sweep, in a pipe or, with a bar, on a terminal.

    ``silent``: notes alone. The journal is what tells how a trial ended, whoever trained it.
    """

    def __init__(self, sweep: Sweep, silent: bool) -> None:
        self._sweep, self._silent = sweep, silent or console.is_quiet()
        self._told = {trial.number for trial in sweep.journal.read() if trial.state is not None}
        self._notes: set[str] = set()
        self._under_way: dict[int, Said] = {}
        self._bar: Any = None
        self._read = 0
        self._printed = perf_counter()

    def note(self, text: str) -> None:
        """A note, once; many trials have the same to say."""
        if text not in self._notes:
            self._notes.add(text)
            console.note(text)

    def hear(self, said: Said) -> None:
        """What a worker says."""
        if said.kind == "line":
            if said.text not in self._notes:
                self._notes.add(said.text)
                console.relay(said.text)
        elif said.kind == "ended":
            if said.trial is not None:
                self._under_way.pop(said.trial, None)
            self.refresh()
        elif said.trial is not None:
            self._under_way[said.trial] = said

    def turn(self) -> None:
        """Several times a second: show the trials that have ended, and how far the others are."""
        self.refresh()
        if self._silent:
            return
        if self._bar is not None:
            self._bar.set_description_str(self._standing())
        elif self._under_way and perf_counter() - self._printed >= progress.SILENCE:
            self._print(self._standing())

    def refresh(self) -> None:
        """Show the trials that have ended since."""
        size = self._sweep.journal.size()
        if size == self._read:
            return
        self._read = size
        search, trials = self._sweep.search, self._sweep.journal.read()
        for trial in trials:
            if trial.state is not None and trial.number not in self._told:
                self._told.add(trial.number)
                ended = [one for one in trials if one.number in self._told]
                self._print(trial_line(search, trial, is_best(self._sweep, trial, ended)))
        if self._bar is not None:
            self._bar.n = len(self._told)
            self._bar.refresh()

    def open(self) -> None:
        """Begin; on a terminal there is a bar from now on."""
        if self._silent or not sys.stdout.isatty():
            return
        from tqdm import tqdm

        # Its thread would be there when a worker is forked.
        tqdm.monitor_interval = 0
        search = self._sweep.search
        counts = [search.trials, len(search.grid()) if search.sampler == "grid" else None]
        total = min((count for count in counts if count is not None), default=None)
        done = "{n_fmt}/{total_fmt} {percentage:3.0f}% |{bar}|" if total else "{n_fmt}"
        self._bar = console.tqdm_bar(
            sys.stdout,
            3,
            total=total,
            initial=len(self._told),
            mininterval=0.0,
            bar_format=done + " {desc}",
        )

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _standing(self) -> str:
        """How far the trials are that are under way, and which is the best."""
        parts = standing(self._under_way, lambda number: f"trial-{number + 1}")
        best = best_trials(self._sweep.search, self._sweep.journal.read())
        if best:
            name = self._sweep.search.objective[0]
            values = best[0].values or (0.0,)
            parts.append(f"best {value_text(name, values[0])} ({best[0].name})")
        return ", ".join(parts)

    def _print(self, text: str) -> None:
        if self._silent:
            return
        if self._bar is None:
            progress.say(text)
        else:
            lines = wrapped_lines(console.clean([text]), console.width())
            self._bar.write(lines, file=sys.stdout)
        self._printed = perf_counter()


def is_best(sweep: Sweep, trial: Trial, trials: list[Trial]) -> bool:
    """Whether a trial is the best of these; of two objectives, whether none beats it."""
    best = best_trials(sweep.search, trials)
    shown = best[:1] if len(sweep.search.objective) == 1 else best
    return any(trial.number == one.number for one in shown)


class Heard(progress.Quiet):
    """Listens to a trial's training and says how far it is."""

    def __init__(self, number: int, say: Say, note: Callable[[str], object]) -> None:
        self._number, self._say, self._note = number, say, note
        self._said = 0.0
        self._epochs = 0.0

    def notice(self, text: str) -> None:
        self._note(text)

    def started(self, started: Started) -> None:
        super().started(started)
        plan = started.plan
        self._epochs = plan.total_steps / plan.steps_per_epoch
        epoch = started.state.step / plan.steps_per_epoch
        self._say(Said("progress", self._number, epoch, self._epochs))

    def progressed(self, progress: Progress) -> None:
        if perf_counter() - self._said >= _OFTEN:
            self._said = perf_counter()
            self._say(Said("progress", self._number, progress.epoch, progress.total_epochs))
