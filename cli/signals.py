"""Signals that ask for an orderly end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

# SIGHUP comes when the terminal is closed; Windows has none.
_WANTED = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


class StopSignals:
    """Inside the block SIGINT, SIGTERM and SIGHUP only set a flag; a second SIGINT kills at once.

    The others may come twice by themselves, as when a terminal and its shell both end. ``said``:
    what standard error says at the first SIGINT, which a person has sent who waits.
    """

    def __init__(self, said: str = "") -> None:
        self._said = said
        self._raised: Exception | None = None
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def raising(self, error: Exception) -> Iterator[None]:
        """Inside this block a signal raises the error instead, whatever Python is waiting for."""
        self._raised = error
        try:
            yield
        finally:
            self._raised = None

    def requested(self) -> bool:
        """Whether a signal has come."""
        return self.received is not None

    @property
    def exit_status(self) -> int:
        """What the shell expects of a process that a signal has ended: 128 + its number; else 0."""
        return 128 + self.received if self.received is not None else 0

    def __enter__(self) -> StopSignals:
        for number in _WANTED:
            # What the parent has switched off, as nohup does, stays off.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
        if self._raised is not None:
            raise self._raised
        if number == signal.SIGINT:
            # The system's own action needs no Python, which a library call may keep waiting.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            # By the descriptor: what was interrupted may be in the middle of a line.
            with suppress(OSError):
                os.write(2, self._said.encode())
