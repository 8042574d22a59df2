"""Files that are written whole or not at all, hashes, and the user's cache folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

Buffer = bytes | bytearray | memoryview

_READ_BYTES = 1 << 20
# The files of atomic_write that a killed process leaves behind.
_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
# What file systems say that cannot make a folder's entries durable by themselves.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EISDIR)


def atomic_write(path: Path | str, data: Buffer | Iterable[Buffer]) -> None:
    """Replace the file ``path`` by ``data`` (or its pieces in order), atomically.

    Temporary file in the same folder, write, fsync, rename, fsync of the folder: after a crash the
    file has either the old content or the new one. The mode is 0644 without the bits of the umask.
    Raises OSError; the temporary file is then deleted, and the old one unchanged unless the folder
    alone could not be synchronised.
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
    sync_folder(target.parent)


def temporary_name(target: Path) -> Path:
    """A new hidden name beside ``target``."""
    return target.with_name(f".{target.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder survive a power loss, where the file system can.

    Raises OSError.
    """
    descriptor = -1
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NO_FOLDER_SYNC:
            raise
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each durably. Raises OSError."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    try:
        folder.mkdir()
    except FileExistsError:
        # Another process may have made it meanwhile; anything else is in the way.
        if not folder.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)
            ) from None
    sync_folder(folder.parent)


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a regular file: neither of what a symbolic link names nor of a pipe.

    A file that ``flags`` create has mode 0644 without the bits of the umask. Raises OSError.
    """
    try:
        # Without waiting for the other end of a pipe.
        safe = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path, flags | safe, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "is a symbolic link", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        # A number of its own: EINVAL is how file systems without locks answer.
        raise OSError(errno.EBADF, "is not a regular file", str(path))
    return descriptor


def read_regular(path: Path | str, most: int) -> bytes:
    """The content of a regular file. Raises OSError, also for more than ``most`` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        # Not ``most``: the memory for what is asked for is taken before anything is read.
        size = os.fstat(file.fileno()).st_size
        content = file.read(min(size, most) + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most:,} bytes", str(path))
    return content


def append(descriptor: int, data: bytes) -> None:
    """Append all of ``data`` to a file that is open for appending, or nothing. Raises OSError."""
    before = os.fstat(descriptor).st_size
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, before)
        raise


def remove_temporaries(folder: Path) -> None:
    """Delete what killed processes left of their writes; only who has the folder's lock may."""
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                with contextlib.suppress(OSError):
                    path.unlink()


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
