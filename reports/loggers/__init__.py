"""Loggers: others' tools that hear of a training; one file each, found by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

from ...common.errors import Warned
from ...common.text import cut
from ...training.listener import Judged, Listener, Passing, Progress, Started, Summary
from ...training.records.formats.state import Metrics
from ...training.setup import Setup
from ..callbacks import begin_logs, step_logs, validation_logs
from ..contact_sheet import draw_sheet, reduced, reduction
from ..evaluate_plots import confusion_picture, errors_picture
from ..history import History
from ..live_curves import LiveCurves
from .logger import Logger

if TYPE_CHECKING:
    from PIL.Image import Image as PilImage

_SAMPLES, _LONGEST = 64, 200


def watched(heard: Listener) -> Listener:
    """A listener that passes everything on, draws curves, and has the loggers of the config."""
    return Logged(LiveCurves(heard))


class Logged(Passing):
    """Passes everything on to a listener, and to the loggers that the config names.

    One that fails hears no more, after a warning; the training goes on as without it.
    """

    def __init__(self, heard: Listener) -> None:
        super().__init__(heard)
        self._loggers: dict[str, Logger] = {}
        self._steps_per_epoch = 1

    def started(self, started: Started) -> None:
        super().started(started)
        setup, self._steps_per_epoch = started.setup, started.plan.steps_per_epoch
        if setup is None:
            return
        for name in setup.config.train.loggers or ():
            found = import_module(f".{name}", __name__)
            self._loggers[name] = found.Logger(setup, started.run)
        self._each(lambda logger: logger.on_train_begin(begin_logs(started)))
        self._show(lambda: _samples(setup), started.state.step)

    def logged(self, progress: Progress) -> None:
        super().logged(progress)
        if (metrics := progress.metrics) is not None:
            self._each(lambda logger: logger.on_log(step_logs(progress, metrics)))

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        super().validated(step, metrics, best, seconds)
        logs = validation_logs(step, step / self._steps_per_epoch, metrics, best)
        self._each(lambda logger: logger.on_validation_end(dict(logs)))

    def ended(self, done: Summary, judged: Judged) -> None:
        super().ended(done, judged)
        if done.state == "finished" and done.validation is not None:
            self._show(lambda: _mistakes(judged), done.step)
        self._each(lambda logger: logger.on_train_end(History.of(done)))

    def close(self) -> None:
        self._each(lambda logger: logger.close())
        super().close()

    def _show(self, drawn: Callable[[], Iterator[tuple[str, PilImage]]], step: int) -> None:
        """Hand pictures to all loggers; if one cannot be drawn, that is a warning."""
        try:
            for name, picture in drawn() if self._loggers else ():
                self._each(lambda logger: logger.on_picture(name, picture, step))  # noqa: B023
        except Exception as error:
            self.notice(Warned(f"train.loggers: pictures are missing: {_reason(error)}"))

    def _each(self, do: Callable[[Logger], object]) -> None:
        for name, logger in [*self._loggers.items()]:
            try:
                # Standard output is ours.
                with redirect_stdout(sys.stderr):
                    do(logger)
            except Exception as error:
                del self._loggers[name]
                failed = f"train.loggers: {name} failed, and hears no more: {_reason(error)}"
                self.notice(Warned(failed))
                with suppress(Exception):
                    logger.close()


def _reason(error: Exception) -> str:
    return cut(f"{type(error).__name__}: {error}", _LONGEST)


def _samples(setup: Setup) -> Iterator[tuple[str, PilImage]]:
    """The first training samples, if they are pictures."""
    data, index = setup.data, setup.plan.train[:_SAMPLES]
    if data.images.dtype == np.uint8:
        pictures = np.asarray(data.images[index])
        small = reduced(pictures, reduction(max(pictures.shape[2:]), 4))
        yield "samples", draw_sheet(f"{data.name}: training samples", [("", small)])


def _mistakes(judged: Judged) -> Iterator[tuple[str, PilImage]]:
    """Which classes the best network takes for which, and its worst mistakes."""
    found, images = judged()
    if found.counts:
        yield "confusion", confusion_picture(found)
        if found.worst and images.images.dtype == np.uint8:
            yield "mistakes", errors_picture(found, images)
