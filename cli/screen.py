"""How many trainings are shown: a line for each that ends, and on a terminal a bar below."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

from ..common.cells import columns, wrapped_lines
from ..many.screen import Said, Screen
from ..reports.loggers import Logged
from ..reports.training_text import of_epochs
from . import console, progress

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


class Shown(Screen):
    """Shows trainings of all processes, in a pipe or, with a bar, on a terminal.

    ``silent``: notes and errors alone. ``path``: their folder, once it is there.
    """

    def __init__(self, silent: bool = False) -> None:
        super().__init__(console.note, progress.listener, Logged)
        self.path: Path | None = None
        self._silent = silent or console.is_quiet()
        self._told: set[Any] = set()
        self._under_way: dict[int, Said] = {}
        self._bar: Any = None
        self._printed = perf_counter()

    def error(self, text: str) -> None:
        console.error(text)

    def relay(self, send: Callable[[str], None]) -> None:
        console.speak_through(send)

    def hear(self, said: Said) -> None:
        if said.kind == "line":
            console.relay(said.text)
        elif said.kind == "ended":
            if said.trial is not None:
                self._under_way.pop(said.trial, None)
            self.refresh()
        elif said.trial is not None:
            self._under_way[said.trial] = said

    def turn(self) -> None:
        if self._bar is not None:
            self._bar.set_description_str(self._standing())
        elif self._under_way and perf_counter() - self._printed >= progress.SILENCE:
            self._print(self._standing())

    def close(self) -> None:
        self.refresh()
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    @abstractmethod
    def refresh(self) -> None:
        """Show what has ended since."""

    @abstractmethod
    def _standing(self) -> str:
        """How far those are that are under way."""

    def _open_bar(self, total: int | None) -> None:
        """On a terminal there is a bar from now on."""
        if self._silent or not sys.stdout.isatty():
            return
        from tqdm import tqdm

        # Its thread would be there when a worker is forked.
        tqdm.monitor_interval = 0
        done = "{n_fmt}/{total_fmt} {percentage:3.0f}% |{bar}|" if total else "{n_fmt}"
        self._bar = console.tqdm_bar(
            sys.stdout,
            3,
            total=total,
            initial=len(self._told),
            mininterval=0.0,
            bar_format=done + " {desc}",
        )

    def _count(self) -> None:
        """Show on the bar how many have ended."""
        if self._bar is not None:
            self._bar.n = len(self._told)
            self._bar.refresh()

    def _print(self, text: str) -> None:
        if self._silent:
            return
        if self._bar is None:
            progress.say(text)
        else:
            lines = wrapped_lines(console.clean([text]), columns(sys.stdout))
            self._bar.write(lines, file=sys.stdout)
        self._printed = perf_counter()
