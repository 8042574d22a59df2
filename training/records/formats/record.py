"""Files that are read and written whole, by a run and by who reads its networks."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ....common.errors import CheckpointError
from ....common.files import atomic_write, open_regular, writing
from ....common.machine import main_memory

NO_RECORD = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF, errno.EFBIG, errno.ENXIO)
"""Where a file of a run is missing, a link, no regular file, or longer than any such file."""


def write_record(run: Path, name: str, content: bytes) -> None:
    """Write or replace a file of a run, such as its config. Raises CheckpointError."""
    then = "free some space, or make the folder writable, then resume"
    with writing(run / name, CheckpointError, then):
        atomic_write(run / name, content)


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
