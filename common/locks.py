"""Locks on files, which the system releases when their process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import socket
import time
from pathlib import Path

from .errors import LockedError
from .files import close_read, naming, open_regular

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What a file system without locks reports."""
_TRIES = 5
_PAUSE = 0.01
# All that a lock's file ever holds.
_HOLDER = re.compile(rb"pid \d+ on [^\n]*\n?")
# What a power loss leaves of it: its beginning, zeros, or a part of an earlier one behind these.
_TORN = re.compile(rb"(?:p(?:i(?:d ?)?)?|pid \d[^\n]*|\0+[^\n\0]{0,100})?\n?\0*")
_LONGEST = 400


class Lock:
    """An exclusive lock on an open file, held until ``release`` or the end of the process.

    The system releases it with the process, however that ends, so a stale file never blocks.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock; a second call does nothing. The file remains, empty."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # Truncated, not deleted: another process may have opened the same file.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            close_read(descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock(path: Path | str) -> Lock:
    """Take the lock at ``path`` (created if missing) without waiting.

    Raises LockedError when another process, or another Lock of this one, has it; the message names
    the holder from the file's text, which is for information only. Raises OSError if the file
    system has no locks, or if the file is a link, or has other content than a lock.
    """
    with naming(path):
        return _taken(Path(path))


def _taken(target: Path) -> Lock:
    import fcntl

    descriptor = open_regular(target, os.O_RDWR | os.O_CREAT)
    try:
        for left in range(_TRIES, 0, -1):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Another process may only be testing whether it is locked.
                if left == 1:
                    raise
                time.sleep(_PAUSE)
    except OSError as error:
        text = b""
        with contextlib.suppress(OSError):
            text = os.read(descriptor, _LONGEST)
        close_read(descriptor)
        holder = text.decode("utf-8", "replace").strip() if _HOLDER.fullmatch(text) else ""
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise LockedError(
                f"{target} is locked by {holder or 'another process'}; "
                "wait for it to end, or stop it"
            ) from None
        raise
    try:
        text = os.read(descriptor, _LONGEST)
        if not _TORN.fullmatch(text):
            raise OSError(errno.EEXIST, "has other content than a lock", str(target))
    except OSError:
        close_read(descriptor)
        raise
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return Lock(descriptor)


def is_locked(path: Path | str) -> bool:
    """Whether another process, or another Lock of this one, holds the lock at ``path`` now."""
    import fcntl

    try:
        descriptor = open_regular(path)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        close_read(descriptor)
    return False
