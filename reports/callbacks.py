"""Callback: what a program may do while a network trains, and what it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, TypeAlias

from ..training.listener import Listener, Passing, Progress, Started, Summary
from ..training.records.formats.state import Metrics
from ..training.weights.start import Start
from . import training_text
from .history import History

Logs: TypeAlias = "dict[str, Any]"


class Callback:
    """Methods that a training calls, in the thread that trains; each does nothing by itself.

    ``logs`` has the names of Keras: step, epoch (1.5: halfway in the second), learning_rate, and
    loss and accuracy (r2 of numbers), or val_loss and val_accuracy and whether they are the best so
    far. Set ``stop_training`` to end the training after the current step; it saves. What a method
    raises ends the training too, without saving, and is raised again.
    """

    stop_training: bool = False

    def on_train_begin(self, logs: Logs) -> None:
        """Before the first step; logs: run (its folder), step, total_steps, steps_per_epoch."""

    def on_log(self, logs: Logs) -> None:
        """After a line of the log was written, for the steps since the line before."""

    def on_validation_end(self, logs: Logs) -> None:
        """After a validation, so after each epoch unless the config says otherwise."""

    def on_train_end(self, history: History) -> None:
        """After the training, which is saved by then."""


class _Function(Callback):
    """Calls a function for every line of the log and every validation."""

    def __init__(self, function: Callable[[Logs], object]) -> None:
        self._function = function

    def on_log(self, logs: Logs) -> None:
        self._function(logs)

    def on_validation_end(self, logs: Logs) -> None:
        self._function(logs)


def as_callbacks(given: Sequence[Callback | Callable[[Logs], object]]) -> list[Callback]:
    """Objects with the methods of Callback, and functions that get the logs of every line.

    Raises TypeError for anything else.
    """
    if not isinstance(given, (list, tuple)):
        example = ""
        if isinstance(given, Callback) or callable(given):
            one = getattr(given, "__name__", f"{type(given).__name__}()")
            example = f", as in callbacks=[{one}]"
        raise TypeError(f"callbacks: expected a list{example or f', got {type(given).__name__}'}")
    for each in given:
        if not isinstance(each, Callback) and not callable(each):
            raise TypeError(f"callbacks: {each!r} is neither a dnnstack.Callback nor a function")
    return [each if isinstance(each, Callback) else _Function(each) for each in given]


class Told(Passing):
    """Passes on to callbacks, and to ``heard``, what a training reports."""

    def __init__(
        self,
        callbacks: Sequence[Callback],
        notice: Callable[[str], None],
        say: Callable[[str], None] | None = None,
        heard: Listener | None = None,
    ) -> None:
        """``say``: where the lines of ``dnnstack train`` go, if they are wanted."""
        super().__init__(heard or Listener())
        self._callbacks = [*callbacks]
        self._notice = notice
        self._say = say or (lambda text: None)
        self._steps_per_epoch = 1

    def stop_requested(self) -> bool:
        """Whether a callback wants the training to end."""
        return any(each.stop_training for each in self._callbacks) or super().stop_requested()

    def notice(self, text: str) -> None:
        self._notice(text)

    def initialized(self, start: Start) -> None:
        super().initialized(start)
        self._say(training_text.initialized(start))

    def started(self, started: Started) -> None:
        super().started(started)
        plan = started.plan
        self._steps_per_epoch = plan.steps_per_epoch
        for line in training_text.beginning(started):
            self._say(line)
        logs = {"run": started.run, "step": started.state.step}
        counts = {"total_steps": plan.total_steps, "steps_per_epoch": plan.steps_per_epoch}
        self._each("on_train_begin", logs | counts)

    def logged(self, progress: Progress) -> None:
        super().logged(progress)
        if progress.metrics is None:
            return
        self._say(training_text.step_line(progress))
        logs = {
            "step": progress.step,
            "epoch": progress.epoch,
            "loss": progress.metrics.loss,
            progress.metrics.measure: progress.metrics.accuracy,
            "learning_rate": progress.learning_rate,
        }
        self._each("on_log", logs)

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        super().validated(step, metrics, best, seconds)
        epoch = step / self._steps_per_epoch
        line = training_text.validation_line(epoch, metrics)
        self._say(f"{line} (best)" if best else line)
        logs = {
            "step": step,
            "epoch": epoch,
            "val_loss": metrics.loss,
            **{f"val_{name}": value for name, value in (metrics.others or {}).items()},
            f"val_{metrics.measure}": metrics.accuracy,
            "best": best,
        }
        self._each("on_validation_end", logs)

    def ended(self, done: Summary, judged: Callable[[], Any]) -> None:
        super().ended(done, judged)
        if self._callbacks:
            self._each("on_train_end", History.of(done))

    def _each(self, method: str, *given: Any) -> None:
        for each in self._callbacks:
            getattr(each, method)(*map(copy, given))
