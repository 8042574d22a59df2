"""Files that are read and written whole, by a run and by who reads its networks."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ....common.errors import CheckpointError, explaining
from ....common.files import atomic_write, open_regular, read_regular
from ....common.machine import main_memory
from ....common.typed_json import from_json

T = TypeVar("T")
NO_RECORD = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF, errno.EFBIG, errno.ENXIO)
"""Where a file of a run is missing, a link, no regular file, or longer than any such file."""


def write_record(run: Path, name: str, content: bytes) -> None:
    """Write or replace a file of a run, such as its config. Raises CheckpointError."""
    advice = "free some space, or make the folder writable, then resume"
    with explaining(run / name, "cannot be written", advice):
        atomic_write(run / name, content)


def read_typed(path: Path, most: int, kind: type[T]) -> T:
    """What a file of JSON of at most ``most`` bytes says. Raises CheckpointError."""
    try:
        return from_json(read_regular(path, most), kind)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CheckpointError(f"{path}: cannot be read: {reason}") from None


def read_whole(path: Path, longest_header: int | None = None) -> bytes:
    """All of a regular file. Raises OSError, also for more bytes than this machine's memory.

    longest_header: of a safetensors file, which begins with the length of its own in eight bytes;
    of a file that cannot be one only the first nine are returned.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        size, begin = os.fstat(file.fileno()).st_size, file.read(9)
        length = int.from_bytes(begin[:8], "little")
        if longest_header is not None and length > min(size, longest_header):
            return begin
        if size > main_memory():
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than this machine's memory")
        file.seek(0)
        return file.read()


Tell = Callable[[str], None]

FileMarks = tuple[int, int, int] | None

_LOOKS = 10


def file_marks(path: Path) -> FileMarks:
    """What changes if a file is replaced; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def settled(marks: Callable[[], object], look: Callable[[Tell], T], tell: Tell) -> T:
    """What ``look`` returns; it looks again if it found fault with files that changed meanwhile.

    marks: what is compared to see whether they changed. ``look`` tells its faults to the function
    that it is given, or raises CheckpointError; ``tell`` is told only those of the last look.
    """
    for left in reversed(range(_LOOKS)):
        before = marks()
        told: list[str] = []
        error = None
        try:
            found = look(told.append)
        except CheckpointError as raised:
            error = raised
        if left and (told or error is not None) and marks() != before:
            continue
        break
    for text in told:
        tell(text)
    if error is not None:
        raise error
    return found
