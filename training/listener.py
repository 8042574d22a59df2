"""What training reports while it runs and at its end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..common.records import dataclass
from .normalization import Found
from .plan import Plan
from .records.formats.state import Best, Metrics, State
from .weights.start import Start

if TYPE_CHECKING:
    from .setup import Setup

EndState = Literal["finished", "interrupted"]


@dataclass(frozen=True)
class Started:
    """Before the first step: run, data and length of the training.

    ``resumed_from`` is the checkpoint from which the ``state`` comes, ``measured`` the
    mean and deviation of each channel, with ``normalize: measured``, but for a table in a file.
    ``samples``: what they are called, as in the others. ``setup``: what is trained, and on what.
    """

    run: Path
    backend: str
    plan: Plan
    state: State
    resumed_from: Path | None
    measured: Found | None = None
    samples: str = "pictures"
    setup: Setup | None = None


@dataclass(frozen=True)
class Progress:
    """The progress after ``step`` updates; ``epoch`` counts passes (1.5: halfway in the 2nd).

    ``metrics`` are those of the last log line (None before the first), ``learning_rate`` that of
    the last step. ``images_per_second`` is that of steps, ``seconds_left`` includes validation and
    saving.
    """

    step: int
    total_steps: int
    epoch: float
    total_epochs: float
    metrics: Metrics | None
    learning_rate: float
    images_per_second: float
    seconds_left: float
    samples: str = "pictures"


@dataclass(frozen=True)
class Summary:
    """How a training ended; ``seconds`` and ``images_per_second`` are those of this process only.

    ``training`` are the metrics of the last log line, at ``training_step``, ``validation`` those of
    the last validation.
    ``early``: it finished before ``total_steps``, by patience or at its goal.
    ``goal``: whether the goal was reached; None without a goal. ``saving_seconds``: for how long
    steps waited for saves.
    """

    state: EndState
    early: bool
    goal: bool | None
    run: Path
    checkpoint: Path | None
    step: int
    total_steps: int
    epoch: float
    training: Metrics | None
    training_step: int
    validation: Metrics | None
    best: Best | None
    training_seconds: float
    validation_seconds: float
    images_per_second: float
    resumed_from: Path | None
    samples: str = "pictures"
    saving_seconds: float = 0.0


class Listener:
    """Receives reports of a training, in the thread that trains, and does nothing with them.

    The methods of derived classes must be quick.
    """

    def notice(self, text: str) -> None:
        """Something that the user should know."""

    def prepared(self) -> None:
        """The config fits the data, which are loaded, and the device is there; it compiles next."""

    def initialized(self, start: Start) -> None:
        """The first weights were taken from a run or a file."""

    def started(self, started: Started) -> None:
        """Everything is ready; the first step follows."""

    def progressed(self, progress: Progress) -> None:
        """After the first step, then several times a second."""

    def logged(self, progress: Progress) -> None:
        """A line of the log was written; ``progress.metrics`` are its own."""

    def validating(self, step: int) -> None:
        """Several times a second during a validation."""

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        """A validation has ended; ``best``: it is the best one so far."""

    def saving(self, step: int, path: Path) -> None:
        """A checkpoint is being written in the background."""

    def stop_requested(self) -> bool:
        """Whether the training is to end after the current step, and save."""
        return False

    def ended(self, done: Summary, judged: Callable[[], Any]) -> None:
        """It has ended in order; ``judged()`` evaluates the best network on validation samples."""

    def close(self) -> None:
        """The training is over, however it has ended."""


class Passing(Listener):
    """Passes everything on to another listener; derived classes add to it."""

    def __init__(self, heard: Listener) -> None:
        self._heard = heard


def _passed_on(name: str) -> Callable[..., Any]:
    """The method of this name of the listener inside."""
    return lambda self, *given: getattr(self._heard, name)(*given)


for _name in [name for name in vars(Listener) if not name.startswith("_")]:
    setattr(Passing, _name, _passed_on(_name))
