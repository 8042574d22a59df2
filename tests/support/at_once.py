"""The command line in a process whose search finds what that of no other process finds.

A script: ``NUMBER FOLDER MODE`` and a command line. It meets ``MEETING`` processes in the folder
before its search ends, so that all of them have come to ask for the choices by then. MODE ``die``
kills the first process that searches; ``lockless`` is a file system without locks, on which all of
them search; ``hang`` meets nobody, and its search does not end.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dnnstack.backends import settling, tuning_cache
from dnnstack.backends.onednn import backend
from dnnstack.backends.onednn.memory import LAYOUTS
from dnnstack.cli.main import main
from dnnstack.common.files import write_new

MEETING = 3
_PATIENCE = 120.0


def _arm(number: int, folder: Path, mode: str) -> None:
    real = settling.cached

    def arrived(*arguments: Any) -> Any:
        _meet(folder, "arrived", number, 1)
        return real(*arguments)

    def search(graph: Any, defaults: Mapping[str, str], seconds: Any) -> dict[str, str]:
        (folder / f"searched-{number}").touch()
        if mode == "hang":
            time.sleep(_PATIENCE)
        _meet(folder, "arrived", number, MEETING)
        if mode == "lockless":
            # Nobody has stored a table before the last one searches.
            _meet(folder, "searched", number, MEETING)
        if mode == "die" and write_new(folder / "died", str(number).encode()):
            os.kill(os.getpid(), signal.SIGKILL)
        return dict.fromkeys(defaults, list(LAYOUTS)[number])

    def no_lock(path: Path) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK), str(path))

    settling.cached = arrived
    backend.search = search
    if mode == "lockless":
        tuning_cache.lock = no_lock  # type: ignore[assignment]


def _meet(folder: Path, what: str, number: int, count: int) -> None:
    (folder / f"{what}-{number}").touch()
    end = time.monotonic() + _PATIENCE
    while len(list(folder.glob(f"{what}-*"))) < count:
        if time.monotonic() > end:
            raise TimeoutError(f"only some {what}")
        time.sleep(0.01)


if __name__ == "__main__":
    _arm(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
    sys.exit(main(sys.argv[4:]))
