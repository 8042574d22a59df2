"""Requests to end: by signals, also before there is anything to save."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

from ..common.errors import Interrupted

# SIGHUP is sent when the terminal is closed; the last three by schedulers of jobs, before the time
# ends. Windows has the first two only.
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
WANTED = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))

# What is printed at the first Ctrl-C, before the first step and from then on.
BEGINNING = "dnnstack: ends before the first step; Ctrl-C again ends now\n"
ENDING = "dnnstack: saves and ends after this step; Ctrl-C again ends now, unsaved\n"


def named(number: int) -> str:
    """The name of a signal; those of real time have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextmanager
def held_back() -> Iterator[None]:
    """Inside this block signals wait; they come at its end, also in a process forked within.

    Else one that comes before the new process can run Python's handlers would be lost: Python
    drops what has come until then.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, WANTED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class StopSignals:
    """Inside the block the signals of WANTED only set a flag; a second SIGINT kills at once.

    A second one of another does not: a terminal and its shell that both end send two. ``said``
    is printed on standard error at the first SIGINT, because the user who sent it is waiting.
    """

    def __init__(self, said: str = "") -> None:
        self._said = said
        self._raised: Exception | None = None
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def begun(self) -> None:
        """From now on there is something to save."""
        self._said = self._said and ENDING

    @contextmanager
    def raising(self, error: Exception) -> Iterator[None]:
        """Inside this block a signal raises the error instead, even while Python is waiting."""
        self._raised = error
        try:
            yield
        finally:
            self._raised = None

    def requested(self) -> bool:
        """Whether a signal has arrived."""
        return self.received is not None

    @property
    def exit_status(self) -> int:
        """128 + the number of the signal, as shells expect; 0 if there was none."""
        return 128 + self.received if self.received is not None else 0

    def __enter__(self) -> StopSignals:
        for number in WANTED:
            # A signal that the parent ignores, as nohup does, stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
        if self._raised is not None:
            raise self._raised
        if number == signal.SIGINT:
            # The default action works even while a library call keeps Python from running.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # Bypass the buffer: the interrupted code may be writing to it.
            with suppress(OSError):
                # A terminal's line holds a bar, and the ^C that it echoed.
                line = "\n" if self._said and os.isatty(2) else ""
                os.write(2, f"{line}{self._said}".encode())


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
