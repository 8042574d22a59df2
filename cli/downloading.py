"""Whether downloads are allowed, and their progress on stderr: a bar on a terminal, else a line."""

from __future__ import annotations

import sys
from typing import Any

from ..datasets import Downloads
from ..datasets.download import Listener
from . import console


def policy(offline: bool) -> Downloads:
    """The policy of ``--offline`` and the environment, with a listener that shows progress."""
    return Downloads(offline=True, listener=Shown()) if offline else Downloads(listener=Shown())


class Shown(Listener):
    """Shows downloads; a notice explains why it waits."""

    _bar: Any = None

    def notice(self, text: str) -> None:
        console.note(text)

    def started(self, name: str, done: int, total: int) -> None:
        self._bar = console.tqdm_bar(
            sys.stderr, total=total, initial=done, desc=name, unit="B", unit_scale=True
        )

    def advanced(self, done: int) -> None:
        self._bar.update(done - self._bar.n)

    def ended(self) -> None:
        self._bar.close()
