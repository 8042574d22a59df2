"""Loggers: others' tools that hear of a training; one file each, found by its name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from copy import copy
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np

from ...common.errors import Warned
from ...common.text import cut
from ...training.listener import Listener, Started, Summary
from ...training.setup import Setup
from ..callbacks import Callback, Told
from ..contact_sheet import draw_sheet, reduced, reduction
from ..evaluate_plots import confusion_picture, errors_picture
from ..live_curves import LiveCurves

Pictures: TypeAlias = Iterable[tuple[str, Any]]
_SAMPLES, _LONGEST = 64, 200


class Logger(Callback):
    """A callback that knows what is trained, in which folder, and also gets pictures."""

    def __init__(self, setup: Setup, run: Any) -> None:
        self.setup, self.run = setup, run

    def on_pictures(self, drawn: Callable[[], Pictures], step: int) -> None:
        """Training samples at the beginning; at the end what is taken for what."""

    def close(self) -> None:
        """The training is over, however it has ended."""


class Logged(Told):
    """Draws curves, and tells the loggers of the config what a training tells ``heard``.

    One that fails hears no more, after a warning; the training goes on as without it.
    """

    def __init__(self, heard: Listener) -> None:
        super().__init__((), heard.notice, heard=LiveCurves(heard))

    def started(self, started: Started) -> None:
        if (setup := started.setup) is not None:
            for name in setup.config.train.loggers or ():
                found = import_module(f".{name}", __name__)
                self._callbacks.append(found.Logger(setup, started.run))
        super().started(started)
        self._each("on_pictures", lambda: _samples(started.setup), started.state.step)

    def ended(self, done: Summary, judged: Callable[[], Any]) -> None:
        if done.state == "finished" and done.validation is not None:
            self._each("on_pictures", lambda: _mistakes(*judged()), done.step)
        super().ended(done, judged)

    def close(self) -> None:
        self._each("close")
        super().close()

    def _each(self, method: str, *given: Any) -> None:
        logger: Any
        for logger in [*self._callbacks]:
            try:
                # Standard output is ours.
                with redirect_stdout(sys.stderr):
                    getattr(logger, method)(*map(copy, given))
            except Exception as error:
                self._callbacks.remove(logger)
                name = type(logger).__module__.rpartition(".")[2]
                reason = cut(f"{type(error).__name__}: {error}", _LONGEST)
                said = f"train.loggers: {name} failed, and hears no more: {reason}"
                self.notice(Warned(said))
                with suppress(Exception):
                    logger.close()


def _samples(setup: Any) -> Pictures:
    """The first training samples, if they are pictures."""
    data, index = setup.data, setup.plan.train[:_SAMPLES]
    if data.images.dtype == np.uint8:
        pictures = np.asarray(data.images[index])
        small = reduced(pictures, reduction(max(pictures.shape[2:]), 4))
        yield "samples", draw_sheet(f"{data.name}: training samples", [("", small)])


def _mistakes(found: Any, images: Any) -> Pictures:
    """Which classes the network takes for which, and its worst mistakes."""
    if found.counts:
        yield "confusion", confusion_picture(found)
        if found.worst and images.images.dtype == np.uint8:
            yield "mistakes", errors_picture(found, images)
