"""Loggers: others' tools that hear of a training; one file each, found by its name."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from copy import copy
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from ...common.errors import UsageError, Warned
from ...common.text import cut
from ...training.listener import Listener, Started, Summary
from ..callbacks import Callback, Logs, Told
from ..contact_sheet import draw_sheet
from ..evaluate_plots import confusion_picture, errors_picture
from ..filter_pictures import filters
from ..live_curves import LiveCurves

Pictures: TypeAlias = Iterable[tuple[str, Any]]
_SAMPLES, _LONGEST, _ALONE = 64, 200, threading.RLock()


class Logger(Callback):
    """A callback that also knows its name, the ``setup`` that is trained, and the run's folder."""

    def __init__(self, name: str, started: Started) -> None:
        self.name, self.run = name, started.run
        self.setup: Any = started.setup

    def on_log(self, logs: Logs) -> None:
        self.write("train", logs.pop("step"), logs)

    def on_validation_end(self, logs: Logs) -> None:
        found = {name.removeprefix("val_"): value for name, value in logs.items()}
        self.write("validation", found.pop("step"), found)

    def write(self, split: str, step: int, values: Logs) -> None:
        """What a line of the log, or a validation, says."""

    def on_pictures(self, drawn: Callable[[], Pictures], step: int) -> None:
        """Training samples at the beginning, at the end what was learned and what is wrong."""

    def close(self) -> None:
        """The training is over, however it has ended."""


class Logged(Told):
    """Draws curves, and tells the loggers of the config what a training tells ``heard``.

    One that fails hears no more, after a warning; the training goes on as without it.
    """

    def __init__(self, heard: Listener) -> None:
        super().__init__((), heard.notice, heard=LiveCurves(heard))

    def started(self, started: Started) -> None:
        setup: Any = started.setup
        for name in (setup and setup.config.train.loggers) or ():
            self._callbacks.append(import_module(f".{name}", __name__).Logger(name, started))
        super().started(started)
        self._each("on_pictures", lambda: _samples(setup), started.state.step)

    def ended(self, done: Summary, judged: Callable[[], Any]) -> None:
        if done.state == "finished" and done.validation is not None:
            self._each("on_pictures", lambda: _learned(*judged()), done.step)
        super().ended(done, judged)

    def close(self) -> None:
        self._each("close")
        super().close()

    def _each(self, method: str, *given: Any) -> None:
        logger: Any
        for logger in [*self._callbacks]:
            try:
                # Standard output is ours, and that of all threads.
                with _ALONE, redirect_stdout(sys.stderr):
                    getattr(logger, method)(*map(copy, given))
            except Exception as error:
                self._callbacks.remove(logger)
                why = cut(f"{type(error).__name__}: {error}", _LONGEST)
                self.notice(Warned(f"train.loggers: {logger.name} failed and hears no more: {why}"))
                with suppress(Exception):
                    logger.close()


def _samples(setup: Any) -> Pictures:
    pictures = np.asarray(setup.data.images[setup.plan.train[:_SAMPLES]])
    if pictures.dtype == np.uint8:
        yield "samples", draw_sheet(f"{setup.data.name}: training samples", [("", pictures)])


def _learned(trained: Any, found: Any, images: Any) -> Pictures:
    with suppress(UsageError):
        yield "filters", filters(trained)
    if found.counts:
        yield "confusion", confusion_picture(found)
        if found.worst and images.images.dtype == np.uint8:
            yield "mistakes", errors_picture(found, images)
