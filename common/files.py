"""Atomic writes of files, hashes, locks, and the user's cache folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from .errors import LockedError

Buffer = bytes | bytearray | memoryview

_READ_BYTES = 1 << 20
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)
"""What a file system without locks reports."""
_LOCK_TRIES = 5
_LOCK_PAUSE = 0.01


def atomic_write(path: Path | str, data: Buffer | Iterable[Buffer]) -> None:
    """Replace the file ``path`` by ``data`` (or its pieces in order), atomically.

    Temporary file in the same folder, write, fsync, rename, fsync of the folder: after a crash the
    file has either the old content or the new one. The mode is 0644 without the bits of the umask.
    Raises OSError; the old file is then unchanged and the temporary one is deleted.
    """
    target = Path(path)
    pieces = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
    temporary = temporary_name(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _fsync_folder(target.parent)


def temporary_name(target: Path) -> Path:
    """A new hidden name beside ``target``."""
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _fsync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        # Some systems refuse to open a folder; the rename itself has already happened.
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256_bytes(data: Buffer) -> str:
    """SHA-256 of ``data`` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's content as 64 hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


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
            os.close(descriptor)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def lock(path: Path | str) -> Lock:
    """Take the lock at ``path`` (created if missing) without waiting.

    Raises LockedError when another process, or another Lock of this one, has it; the message names
    the holder from the file's text, which is for information only. Raises OSError if the file
    system has no locks.
    """
    import fcntl

    target = Path(path)
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        for left in range(_LOCK_TRIES, 0, -1):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # Another process may only be testing whether it is locked.
                if left == 1:
                    raise
                time.sleep(_LOCK_PAUSE)
    except OSError as error:
        holder = os.read(descriptor, 200).decode("utf-8", "replace").strip()
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise LockedError(
                f"{target} is locked by {holder or 'another process'}; "
                "wait for it to end, or stop it"
            ) from None
        raise
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return Lock(descriptor)


def is_locked(path: Path | str) -> bool:
    """Whether another process, or another Lock of this one, holds the lock at ``path`` now."""
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def cache_dir() -> Path:
    """``DNNSTACK_CACHE``, else ``$XDG_CACHE_HOME/dnnstack``, else ``~/.cache/dnnstack``.

    The folder is not created.
    """
    own = os.environ.get("DNNSTACK_CACHE")
    if own:
        return Path(own).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    # The XDG specification says to ignore relative paths.
    if general and os.path.isabs(general):
        return Path(general) / "dnnstack"
    return Path(os.path.expanduser("~")) / ".cache" / "dnnstack"
