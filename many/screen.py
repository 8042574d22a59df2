"""What many trainings tell the process that has started them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Literal

from ..backends.base import Backend
from ..common.errors import Warned
from ..common.records import dataclass
from ..training.listener import Listener, Progress, Started, Summary

_OFTEN = 0.5


@dataclass(frozen=True)
class Said:
    """What a worker says: of a training that it has begun, its progress, a line for people, an
    error.

    ``trial``: the number of the training; ``epoch``, ``epochs``: how far it is, and where it ends.
    ``warned``: the line is a warning.
    """

    kind: Literal["begun", "progress", "ended", "line", "error"]
    trial: int | None = None
    epoch: float = 0.0
    epochs: float = 0.0
    text: str = ""
    warned: bool = False

    @property
    def line(self) -> str:
        return Warned(self.text) if self.warned else self.text


Say = Callable[[Said], None]


class Screen:
    """Hears how many trainings go, and says notes and errors; derived classes show more.

    ``listener`` makes what listens to a training of this process; ``watched`` makes of a listener
    one that passes everything on to it, for any training, wherever it runs.
    """

    def __init__(
        self,
        say: Callable[[str], object] = lambda text: None,
        listener: Callable[[], Listener] = Listener,
        watched: Callable[[Listener], Listener] = lambda heard: heard,
    ) -> None:
        self._say, self.listener, self.watched = say, listener, watched

    def notice(self, text: str) -> None:
        """Something that people should know."""
        self._say(text)

    def error(self, text: str) -> None:
        """A training has failed; others go on."""
        self._say(text)

    def relay(self, send: Callable[[str], None]) -> None:
        """In a worker process: hand ``send`` what would be printed from now on."""
        self._say = send

    def opening(self, path: Path, backend: Backend | None, count: int, threads: int) -> None:
        """The folder of the trainings is there, and nothing stands in their way.

        ``backend``: of this process; None if ``count`` worker processes have theirs, each with so
        many ``threads``.
        """

    def begins(self, place: int, count: int, name: str) -> None:
        """A training of this process begins, the one at this place, from 1, of ``count``."""

    def trained(self, run: Path) -> None:
        """A training has ended, in the process that trained."""

    def ended(self, done: Summary) -> None:
        """How a training of this process has ended."""

    def spreads(self, left: int, count: int) -> None:
        """What is ``left`` trains ``count`` at a time from now on."""

    def open(self) -> None:
        """Trainings begin side by side."""

    def hear(self, said: Said) -> None:
        """What a worker says."""
        if said.kind == "line":
            self._say(said.line)

    def turn(self) -> None:
        """Several times a second while they train side by side."""

    def close(self) -> None:
        """They have ended."""


class Heard(Listener):
    """Listens to a training and says how far it is."""

    def __init__(self, number: int, say: Say, notice: Callable[[str], object]) -> None:
        self._number, self._say, self._notice = number, say, notice
        self._said = 0.0

    def notice(self, text: str) -> None:
        self._notice(text)

    def started(self, started: Started) -> None:
        plan = started.plan
        epochs = plan.total_steps / plan.steps_per_epoch
        self._progress(started.state.step / plan.steps_per_epoch, epochs)

    def progressed(self, progress: Progress) -> None:
        if perf_counter() - self._said >= _OFTEN:
            self._said = perf_counter()
            self._progress(progress.epoch, progress.total_epochs)

    def _progress(self, epoch: float, epochs: float) -> None:
        self._say(Said("progress", self._number, epoch, epochs))
