"""Curves that are drawn while the training goes on."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from ..training.listener import Listener, Passing, Started
from ..training.records.formats.state import Metrics
from .plots import draw_curves

SHARE = 0.02
"""The most of a training's time that drawing may take."""
_FIRST = 1.0
"""Seconds that the first drawing is expected to take, with the import of matplotlib."""


class LiveCurves(Passing):
    """Passes everything on to a listener, and draws ``curves.png`` after validations.

    A drawing has to wait until the last one has taken no more than SHARE of the time since. What
    fails is tried again at the end of the training, which then says so.
    """

    def __init__(self, heard: Listener) -> None:
        super().__init__(heard)
        self._run: Path | None = None
        self._cost, self._since = _FIRST, perf_counter()

    def started(self, started: Started) -> None:
        self._run, self._since = started.run, perf_counter()
        self._heard.started(started)

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
