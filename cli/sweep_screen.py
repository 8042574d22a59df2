"""What a sweep shows while it runs: a line for each trial that ends, and how far the others are."""

from __future__ import annotations

from pathlib import Path

from ..backends.base import Backend
from ..common.printable import printable
from ..configs.search import Search
from ..many.journal import Journal
from ..many.screen import Said
from ..many.sweeping import best_trials
from ..reports.sweep_text import trial_line, value_text
from . import console, progress
from .screen import Shown, standing


class SweepScreen(Shown):
    """Shows trials of all processes of a sweep.

    The journal is what tells how a trial ended, whoever trained it.
    """

    def __init__(self, search: Search, silent: bool) -> None:
        super().__init__(silent)
        self.search = search
        self._notes: set[str] = set()
        self._read = 0

    def notice(self, text: str) -> None:
        """A note, once; many trials have the same to say."""
        if text not in self._notes:
            self._notes.add(text)
            console.note(text)

    def hear(self, said: Said) -> None:
        if said.kind != "line":
            super().hear(said)
        elif said.text not in self._notes:
            self._notes.add(said.text)
            console.relay(said.text)

    def opening(self, path: Path, backend: Backend | None, count: int, threads: int) -> None:
        self.path, self._journal = path, Journal(path, self.search)
        self._told = {each.number for each in self._journal.read() if each.state is not None}
        if self._silent:
            return
        progress.remark(f"sweep       {printable(path)}")
        if count > 1:
            how = f"threads of each: {threads}" if backend is None else "in one process"
            progress.remark(f"workers     {count}, {how}")

    def turn(self) -> None:
        self.refresh()
        super().turn()

    def refresh(self) -> None:
        size = self._journal.size()
        if size == self._read:
            return
        self._read = size
        trials = self._journal.read()
        for trial in trials:
            if trial.state is not None and trial.number not in self._told:
                self._told.add(trial.number)
                ended = [one for one in trials if one.number in self._told]
                self._print(trial_line(self.search, trial, ended))
        self._count()

    def open(self) -> None:
        search = self.search
        counts = [search.trials, len(search.grid()) if search.sampler == "grid" else None]
        self._open_bar(min((count for count in counts if count is not None), default=None))

    def _standing(self) -> str:
        """How far the trials are that are under way, and which is the best."""
        parts = standing(self._under_way, lambda number: f"trial-{number + 1}")
        best = best_trials(self.search, self._journal.read())
        if best:
            name = self.search.objective[0]
            values = best[0].values or (0.0,)
            parts.append(f"best {value_text(name, values[0])} ({best[0].name})")
        return ", ".join(parts)
