"""Files that are written whole or not at all, hashes, and the user's cache folder."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .errors import CheckpointError

Buffer = bytes | bytearray | memoryview

_HASHED_BYTES = 32 << 20
# Bytes of a line that are read at once: the rest of a longer one is taken for another line.
_LONGEST_LINE = 1 << 24
# The files of atomic_write that a killed process leaves behind.
_TEMPORARY = re.compile(r"\.(?P<target>.+)\.(?P<process>\d+)\.[0-9a-f]{8}\.tmp")
# Seconds after which nobody still writes a temporary file: a writer changes it all the time.
_SAFE_AGE = 3600.0
# What file systems without hard links say.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP)
# What file systems say that cannot make a folder's entries durable by themselves.
_NO_FOLDER_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EISDIR)


def atomic_write(path: Path | str, data: Buffer | Iterable[Buffer], durable: bool = True) -> None:
    """Replace the file ``path`` by ``data`` (or its pieces in order), atomically.

    Temporary file in the same folder, write, fsync, rename, fsync of the folder: after a crash the
    file has either the old content or the new one. Not ``durable``: without both fsyncs, so that
    this holds for a crash of the process alone. The mode is 0644 without the bits of the umask.
    Raises OSError with the name of the file; the temporary file is then deleted, and the old one
    unchanged unless the folder alone could not be synchronised.
    """
    _write_as(os.fspath(path), data, os.replace, durable)


def write_new(path: Path | str, data: Buffer | Iterable[Buffer]) -> bool:
    """Create the file ``path`` as ``atomic_write`` does, unless there is one; whether it did.

    Of several processes exactly one creates it; where the file system has no hard links, two that
    come at the same instant may both. Raises OSError.
    """
    try:
        _write_as(os.fspath(path), data, _link)
    except FileExistsError:
        return False
    return True


def _link(temporary: str, target: str) -> None:
    try:
        os.link(temporary, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
        os.replace(temporary, target)
        return
    os.unlink(temporary)


def _write_as(
    target: str,
    data: Buffer | Iterable[Buffer],
    put: Callable[[str, str], None],
    durable: bool = True,
) -> None:
    """Write a temporary file, and let ``put`` give it its name; it is deleted after an error."""
    pieces = [data] if isinstance(data, (bytes, bytearray, memoryview)) else data
    temporary = temporary_name(target)
    with naming(target):
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            put(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if durable:
            sync_folder(os.path.dirname(target) or os.curdir)


class naming:
    """Let an OSError of a descriptor, or of a temporary file, say which file it is about.

    No generator: in Python 3.12 its frame, the error and all frames around it would hold each other
    until the next collection, with the GPU memory that these frames use.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(self._path)) from None


def temporary_name(target: Path | str) -> str:
    """A new hidden name beside ``target``."""
    # No Path is made of names that are new each time: Python 3.12 never frees their parts.
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def sync_folder(folder: Path | str) -> None:
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
            close_read(descriptor)


def close_read(descriptor: int) -> None:
    """Close what was only read or locked, so that nothing can be lost by it."""
    with contextlib.suppress(OSError):
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents, each durably. Raises OSError."""
    if folder.is_dir():
        # A process that was killed may have made it, and not come to this.
        sync_folder(folder.parent)
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
        close_read(descriptor)
        # A number of its own: EINVAL is how file systems without locks answer.
        raise OSError(errno.EBADF, "is not a regular file", str(path))
    return descriptor


def read_regular(path: Path | str, most: int) -> bytes:
    """The content of a regular file. Raises OSError, also for more than ``most`` bytes.

    What is appended meanwhile is left out.
    """
    with naming(path), os.fdopen(open_regular(path), "rb") as file:
        # Python sets aside as much memory as it is asked to read, whatever the file's size.
        content = file.read(min(os.fstat(file.fileno()).st_size, most + 1))
    if len(content) > most:
        raise OSError(errno.EFBIG, f"is larger than {most:,} bytes", str(path))
    return content


def regular_lines(path: Path | str, most: int) -> Iterator[bytes]:
    """The lines of a regular file, one after the other. Raises OSError as ``read_regular`` does."""
    with naming(path), os.fdopen(open_regular(path), "rb") as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"is larger than {most:,} bytes", str(path))
        yield from iter(lambda: file.readline(_LONGEST_LINE), b"")


def refuse_link(path: Path) -> None:
    """Raise CheckpointError for a symbolic link in a folder that others may have made."""
    if path.is_symlink():
        raise CheckpointError(f"{path}: is a symbolic link; replace it by the folder that it names")


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


def remove_abandoned(folder: Path, locked: str = "") -> None:
    """Delete what killed processes left of their writes in a folder that others may write to, too.

    That is files of this user, with the names that ``atomic_write`` gives, of a process that does
    not run (here), and not changed for an hour, since processes elsewhere are unknown. The hour
    does not matter for the temporary files of ``locked``, a file that only this process may write.
    """
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            match = _TEMPORARY.fullmatch(path.name)
            if match is None or _runs(int(match["process"])):
                continue
            with contextlib.suppress(OSError):
                found = path.lstat()
                old = time.time() - found.st_mtime > _SAFE_AGE
                kind = stat.S_IFMT(found.st_mode)
                ours = kind in (stat.S_IFREG, stat.S_IFLNK) and found.st_uid == os.geteuid()
                if ours and (old or match["target"] == locked):
                    path.unlink()


def _runs(process: int) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def sha256_bytes(data: Buffer) -> str:
    """SHA-256 of ``data`` as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """SHA-256 of a file's content as 64 hexadecimal digits. Raises OSError."""
    digest = hashlib.sha256()
    # In long pieces: behind each one the thread waits for others that compute.
    with open(path, "rb", buffering=0) as file:
        piece = memoryview(bytearray(min(_HASHED_BYTES, os.fstat(file.fileno()).st_size or 1)))
        while count := file.readinto(piece):
            digest.update(piece[:count])
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
