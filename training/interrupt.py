"""Ending early, before there is anything to save."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from ..common.errors import Interrupted

Result = TypeVar("Result")

NOTHING_SAVED = "interrupted before the first step; there was nothing to save"
_SECONDS = 0.05


def check(stop_requested: Callable[[], bool]) -> None:
    """Raise Interrupted if a stop is requested."""
    if stop_requested():
        raise Interrupted(NOTHING_SAVED)


def interruptible(work: Callable[[], Result], stop_requested: Callable[[], bool]) -> Result:
    """Run ``work()`` in another thread, so that a stop need not wait for it.

    For work on files, such as reading or downloading a data set, which can be abandoned at any
    moment and repeated later. Raises what ``work`` raises, and Interrupted.
    """
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="data", daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_SECONDS)
        if thread.is_alive():
            check(stop_requested)
    if errors:
        raise errors[0]
    return results[0]
