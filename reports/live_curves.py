"""Curves that are drawn while the training goes on."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from ..training.listener import Listener, Progress, Started
from ..training.metrics import Metrics
from ..training.weights.start import Start
from .plots import draw_curves

SHARE = 0.02
"""The most of a training's time that drawing may take."""
_FIRST = 1.0
"""Seconds that the first drawing is expected to take, with the import of matplotlib."""


class LiveCurves(Listener):
    """Passes everything on to a listener, and draws ``curves.png`` after validations.

    A drawing has to wait until the last one has taken no more than SHARE of the time since. What
    fails is tried again at the end of the training, which then says so.
    """

    def __init__(self, heard: Listener) -> None:
        self._heard = heard
        self._run: Path | None = None
        self._cost, self._since = _FIRST, perf_counter()

    def notice(self, text: str) -> None:
        self._heard.notice(text)

    def prepared(self) -> None:
        self._heard.prepared()

    def initialized(self, start: Start) -> None:
        self._heard.initialized(start)

    def started(self, started: Started) -> None:
        self._run, self._since = started.run, perf_counter()
        self._heard.started(started)

    def progressed(self, progress: Progress) -> None:
        self._heard.progressed(progress)

    def logged(self, progress: Progress) -> None:
        self._heard.logged(progress)

    def validating(self, step: int) -> None:
        self._heard.validating(step)

    def validated(self, step: int, metrics: Metrics, best: bool, seconds: float) -> None:
        self._heard.validated(step, metrics, best, seconds)
        began = perf_counter()
        if self._run is None or self._cost > SHARE * (began - self._since):
            return
        failed: list[str] = []
        draw_curves(self._run, failed.append, durable=False)
        if failed:
            self._run = None
        self._since = perf_counter()
        self._cost = self._since - began

    def saving(self, step: int, path: Path) -> None:
        self._heard.saving(step, path)
