"""Which runs of a group each of several processes, or threads of one, trains."""

from __future__ import annotations

import fcntl
import tempfile
import threading


class Claims:
    """Numbers that processes forked from this one take, each by one of them.

    A process that ends, in whatever way, gives back what it took. (Record locks of POSIX, on a
    file without a name that all of them have inherited.)
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed below

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def take(self, number: int) -> bool:
        """Whether the number is this process's from now on, or was already; from 0."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, number)
        except (BlockingIOError, PermissionError):
            return False
        return True


class Taken:
    """Numbers that threads of this process take, each once."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._lock = threading.Lock()

    def take(self, number: int) -> bool:
        """Whether nobody has taken the number before; from 0."""
        with self._lock:
            free = number not in self._numbers
            self._numbers.add(number)
            return free
