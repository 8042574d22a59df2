"""How a training is shown: a progress bar on a terminal, plain lines in a pipe or a file.

If nobody reads any more (a closed terminal, the end of ``| head``), training continues silently.
"""

from __future__ import annotations

import errno
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import isfinite
from shutil import get_terminal_size
from time import perf_counter
from typing import Any

from ..common.cells import columns, wrapped_lines
from ..common.printable import printable
from ..reports import training_text
from ..reports.callbacks import Callback, Logs
from ..reports.history import History
from ..training.listener import Listener, Progress, Started
from ..training.records.formats.state import Metrics
from ..training.weights.start import Start
from . import console

_ECHO = 3
"""Columns left free; otherwise an echoed ^C would wrap, and a copy of the bar would remain."""
_WIDE = 100
"""The number of columns from which the bar has room for the learning rate."""


SILENCE = 8.0
"""Seconds without a line after which a pipe gets one that the log does not have."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def say(*parts: str) -> None:
    """Print lines on standard output, as ``console.tell`` does, if that can be written."""
    with _heard_or_not():
        console.tell(*parts)


def remark(text: str) -> None:
    """Print a line, unless ``--quiet`` was given."""
    if not console.is_quiet():
        say(text)


@contextmanager
def _heard_or_not() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # A reader or a terminal that is gone wants no more; a full disk is told at the end.
        if error.errno in _FULL:
            console.lost.append(error)
        # The rest of the buffer would fail again at exit, and change the exit status.
        console.drop_output()


class Lines(Listener):
    """Listens to a training; prints a line for each line of its log and each validation.

    ``advice`` is called whenever a line is logged, until it returns a text, which is then noted.
    ``opening`` is called once nothing stands in the way of the training: what it prints would only
    keep a reader from the message if something did. ``under_way`` is called before the first step.
    """

    advice: Callable[[], str] | None = None
    opening: Callable[[], None] = staticmethod(lambda: None)
    under_way: Callable[[], None] = staticmethod(lambda: None)
    _printed = 0.0

    def notice(self, text: str) -> None:
        console.note(text)

    def prepared(self) -> None:
        self.opening()

    def initialized(self, start: Start) -> None:
        say(training_text.initialized(start))

    def started(self, started: Started) -> None:
        self._steps_per_epoch = started.plan.steps_per_epoch
        self.under_way()
        for line in training_text.beginning(started):
            say(line)
        self._printed = perf_counter()

    def progressed(self, progress: Progress) -> None:
        if perf_counter() - self._printed >= SILENCE:
            # The metrics are those of the last line of the log, which has been printed.
            self._print(training_text.step_line(replace(progress, metrics=None)))

    def validating(self, step: int) -> None:
        if perf_counter() - self._printed >= SILENCE:
            epoch = training_text.epochs(step / self._steps_per_epoch)
            self._print(f"epoch {epoch}: validation is under way")

    def logged(self, progress: Progress) -> None:
        self._print(training_text.step_line(progress))
        self._advise()

    def _advise(self) -> None:
        if self.advice is not None and (text := self.advice()):
            self.advice = None
            self.notice(text)

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        epoch = step / self._steps_per_epoch
        self._print(
            training_text.validation_line(epoch, metrics),
            *((" ", console.coloured("(best)", "green", sys.stdout)) if best else ()),
        )

    def _print(self, *parts: str) -> None:
        say(*parts)
        self._printed = perf_counter()


class Bar(Lines):
    """The same on a terminal: the log updates a bar, and validations are printed above it."""

    _bar: Any = None

    def started(self, started: Started) -> None:
        super().started(started)
        with _heard_or_not():
            self._bar = console.tqdm_bar(
                sys.stdout,
                _ECHO,
                total=started.plan.total_steps,
                initial=started.state.step,
                # The loop calls only several times a second, so tqdm need not skip any update.
                mininterval=0.0,
                bar_format="{n_fmt}/{total_fmt} {percentage:3.0f}% |{bar}| {desc}",
            )

    def validating(self, step: int) -> None:
        """The bar is there."""

    def progressed(self, progress: Progress) -> None:
        if self._bar is None:
            return
        self._bar.n = progress.step
        columns = get_terminal_size().columns
        self._bar.ncols = columns - _ECHO
        figures = training_text.short_figures(progress, wide=columns >= _WIDE)
        with _heard_or_not():
            epoch = training_text.of_epochs(progress.epoch, progress.total_epochs)
            self._bar.set_description_str(f"epoch {epoch} {figures}")

    def logged(self, progress: Progress) -> None:
        self.progressed(progress)
        self._advise()

    def notice(self, text: str) -> None:
        if self._bar is None:
            super().notice(text)
        elif text := console.seldom(text):
            self._print(printable(text))

    def close(self) -> None:
        if self._bar is not None:
            with _heard_or_not():
                self._bar.close()

    def _print(self, *parts: str) -> None:
        if self._bar is None:
            return super()._print(*parts)
        with _heard_or_not():
            text = wrapped_lines(console.clean(parts), columns(sys.stdout))
            self._bar.write(text, file=sys.stdout)


class Quiet(Lines):
    """Listens to a training and prints nothing."""

    def initialized(self, start: Start) -> None:
        """Nothing to print."""

    def started(self, started: Started) -> None:
        self._steps_per_epoch = started.plan.steps_per_epoch
        self.under_way()

    def _print(self, *parts: str) -> None:
        """Nothing to print: lines during the training are not results."""


class JsonLines(Callback):
    """Prints what a training reports as JSON Lines; null is what is not finite."""

    def on_train_begin(self, logs: Logs) -> None:
        self._say("start", logs)

    def on_log(self, logs: Logs) -> None:
        self._say("log", logs)

    def on_validation_end(self, logs: Logs) -> None:
        self._say("validation", logs)

    def on_train_end(self, history: History) -> None:
        shown = {key: value for key, value in vars(history).items() if key != "history"}
        self._say("end", {**shown, "best": history.best and history.best.to_json()})

    def _say(self, event: str, logs: Logs) -> None:
        endless = (k for k, v in logs.items() if isinstance(v, float) and not isfinite(v))
        say(json.dumps({"event": event, **logs, **dict.fromkeys(endless)}, default=str))


def listener() -> Lines:
    """Return the listener that suits standard output and ``--quiet``."""
    if console.is_quiet():
        return Quiet()
    return Bar() if sys.stdout.isatty() else Lines()
