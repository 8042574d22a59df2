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

    def __init__(self, descriptor: int, path: Path, keep: bool = True, text: bytes = b"") -> None:
        self._descriptor: int | None = descriptor
        self._path, self._keep, self._text = path, keep, text

    def also_taken_by(self) -> str:
        """Who has taken this lock after this process, by the file's text; "" if nobody is named.

        That can be where the system keeps the locks of a shared folder on each machine alone.
        """
        try:
            # Opened anew, for what another machine wrote may not be seen through an old descriptor.
            descriptor = open_regular(self._path)
        except OSError:
            return ""
        text = b""
        try:
            with contextlib.suppress(OSError):
                text = os.read(descriptor, _LONGEST)
        finally:
            close_read(descriptor)
        return "" if text == self._text else _holder(text)

    def release(self) -> None:
        """Release the lock; a second call does nothing. The file is emptied, or deleted."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                if not self._keep:
                    self._path.unlink()
            close_read(descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock(path: Path | str, keep: bool = True, tries: int = _TRIES) -> Lock:
    """Take the lock at ``path`` (created if missing), in so many tries, 10 ms apart.

    Unless its file is to be kept, it is deleted at the end. Raises LockedError when another
    process, or another Lock of this one, has it; the message names the holder from the file's text,
    which is for information only. Raises OSError if the file system has no locks, or if the file is
    a link, or has other content than a lock.
    """
    target = Path(path)
    with naming(target):
        while True:
            descriptor = _locked(target, tries)
            # Another process may have deleted the file after it was opened here.
            if _is_at(descriptor, target):
                break
            close_read(descriptor)
        try:
            text = os.read(descriptor, _LONGEST)
            if not _TORN.fullmatch(text):
                raise OSError(errno.EEXIST, "has other content than a lock", str(target))
        except OSError:
            close_read(descriptor)
            raise
    own = f"pid {os.getpid()} on {socket.gethostname()}\n".encode()
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, own, 0)
    return Lock(descriptor, target, keep, own)


def _holder(text: bytes) -> str:
    """Whom the text of a lock's file names; "" if nobody."""
    return text.decode("utf-8", "replace").strip() if _HOLDER.fullmatch(text) else ""


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _locked(target: Path, tries: int) -> int:
    """The descriptor of the locked file. Raises LockedError and OSError, as ``lock`` does."""
    import fcntl

    descriptor = open_regular(target, os.O_RDWR | os.O_CREAT)
    try:
        for left in range(tries, 0, -1):
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
        holder = _holder(text)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise LockedError(
                f"{target} is locked by {holder or 'another process'}; "
                "wait for it to end, or stop it",
                holder,
            ) from None
        raise
    return descriptor


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
