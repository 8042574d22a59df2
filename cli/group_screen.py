"""What ``train --seeds`` and ``--folds`` show."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ..backends.base import Backend
from ..common.printable import printable
from ..common.text import versions_text
from ..configs import LoadedConfig
from ..many.outcome import Outcome, outcome
from ..reports.drawings import Drawings
from ..reports.training_text import duration, summary
from ..training.listener import Summary
from ..training.records.formats.state import shown
from ..training.records.group import read_group
from . import console, progress
from .screen import Shown, standing


class GroupScreen(Shown):
    """Shows the runs of a group, and draws their curves; use as a context.

    ``base``: the config that they share, set before they begin.
    """

    base: LoadedConfig

    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._stack = ExitStack()

    def __enter__(self) -> GroupScreen:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def opening(self, path: Path, backend: Backend | None, count: int, threads: int) -> None:
        self.path, base = path, self.base
        found = "ships with the package" if base.packaged else printable(base.path)
        progress.remark(f"config      {base.config.name} ({found})")
        if backend is not None:
            progress.remark(f"device      {backend.name}: {versions_text(backend.versions())}")
        if backend is None:
            progress.remark(f"workers     {count}, threads of each: {threads}")
        elif count > 1:
            progress.remark(f"workers     {count}, in one process")
        progress.remark(f"group       {printable(path)}")
        apart = backend is not None and backend.name == "cuda"
        self._drawings = self._stack.enter_context(Drawings(console.note, apart))
        self._drawings.make_up(path)

    def begins(self, place: int, count: int, name: str) -> None:
        progress.remark("")
        progress.remark(f"{name}: run {place} of {count}")

    def trained(self, run: Path) -> None:
        self._drawings.draw(run)

    def ended(self, done: Summary) -> None:
        if not console.is_quiet():
            progress.say(summary(done))

    def spreads(self, left: int, count: int) -> None:
        progress.remark("")
        what = f"the {left} runs left, {count} at a time"
        progress.remark(f"together    {what}; --workers 1 trains them in turn")

    def open(self) -> None:
        assert self.path is not None
        self._names = [each.name for each in read_group(self.path).members]
        self._told = {name for name in self._names if outcome(self.path / name).finished}
        self._open_bar(len(self._names))

    def refresh(self) -> None:
        assert self.path is not None
        for number, name in enumerate(self._names):
            if name in self._told or number in self._under_way:
                continue
            found = outcome(self.path / name)
            if found.finished:
                self._told.add(name)
                self._print(_line(name, found))
        self._count()

    def _standing(self) -> str:
        names = [printable(name) for name in self._names]
        return ", ".join(standing(self._under_way, names.__getitem__))


def _line(name: str, found: Outcome) -> str:
    accuracy = ""
    if found.accuracy is not None:
        word = " accuracy" if found.measure == "accuracy" else ""
        accuracy = f"{word} {shown(found.measure, found.accuracy)} on validation,"
    spent = duration(found.seconds)
    return f"{printable(name)}: finished,{accuracy} step {found.step}, {spent} of training"
