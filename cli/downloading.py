"""How downloads are allowed and shown: a bar on a terminal, a line elsewhere, all on stderr."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from . import console

if TYPE_CHECKING:
    from ..datasets import Downloads


def policy(offline: bool) -> Downloads:
    """What ``--offline`` and the environment say, with somebody to show what comes."""
    from ..datasets import Downloads

    return Downloads(offline=True, listener=Shown()) if offline else Downloads(listener=Shown())


class Shown:
    """Hears of downloads; see datasets.download.Listener."""

    _bar: Any = None

    def notice(self, text: str) -> None:
        console.note(text)

    def started(self, name: str, done: int, total: int) -> None:
        from tqdm import tqdm

        size = get_terminal_size()
        self._bar = tqdm(
            total=total,
            initial=done,
            desc=name,
            unit="B",
            unit_scale=True,
            file=sys.stderr,
            disable=True if console.is_quiet() else None,
            leave=False,
            # tqdm shows nothing on a terminal that does not say how large it is.
            ncols=size.columns,
            nrows=size.lines,
        )

    def advanced(self, done: int) -> None:
        self._bar.update(done - self._bar.n)

    def ended(self) -> None:
        self._bar.close()

    def waiting(self) -> None:
        """The notice before it has said why nothing moves."""
