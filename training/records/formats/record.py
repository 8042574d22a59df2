"""A record of a run: a small file of its folder, written whole."""

from __future__ import annotations

import errno
from pathlib import Path

from ....common.errors import CheckpointError
from ....common.files import atomic_write

NO_RECORD = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF, errno.EFBIG, errno.ENXIO)
"""Where a file of a run is missing, a link, no regular file, or longer than any such file."""


def write_record(run: Path, name: str, content: bytes) -> None:
    """Write or replace a file of a run, such as its config. Raises CheckpointError."""
    try:
        atomic_write(run / name, content)
    except OSError as error:
        raise CheckpointError(
            f"{run / name}: cannot be written: {error.strerror}; free some space, or make the "
            "folder writable, then resume"
        ) from None
