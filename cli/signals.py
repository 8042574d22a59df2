"""Signals that ask for an orderly end."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

_WANTED = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Inside the block SIGINT and SIGTERM only set a flag; a second one acts as it always does."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, Any] = {}

    def requested(self) -> bool:
        """Whether a signal has come."""
        return self.received is not None

    @property
    def exit_status(self) -> int:
        """What the shell expects of a process that a signal has ended: 128 + its number."""
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
        self.received = signal.Signals(number)
        signal.signal(number, self._before[self.received])
