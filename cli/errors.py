"""What is told of an error that ends a command, or one of its worker processes."""

from __future__ import annotations

import errno
import os
import sys

from ..common.errors import DnnstackError
from ..common.printable import printable
from . import console

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)
"""What the system reports of a disk that is full or fails; without a file, of standard output."""


def told(error: Exception) -> str | None:
    """What is told of an error with exit status 1; None for a bug, which keeps its traceback."""
    if isinstance(error, DnnstackError):
        return str(error)
    if isinstance(error, MemoryError):
        detail = f" ({printable(error)})" if str(error) else ""
        return (
            f"out of memory{detail}; lower data.batch_size or data.evaluation_batch_size, or end "
            "other programs"
        )
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        # Any look at a path that somebody has typed may give it.
        return f"{error.filename}: is too long for the name of a file"
    gone = isinstance(error, FileNotFoundError) and error.filename is None
    if gone and os.readlink("/proc/self/cwd").endswith(" (deleted)"):
        return "the current folder has been removed, or made anew; go to a folder that exists: cd"
    if (
        isinstance(error, OSError)
        and error.errno in (*_FULL, errno.EBADF)
        and (error.filename is not None or error.errno != errno.EACCES)
    ):
        return _unwritten(error)
    fault = _fault_of_plugin(error)
    return None if fault is None else str(fault)


def _unwritten(error: OSError) -> str:
    if error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    console.drop_output()
    return f"standard output: cannot be written: {error.strerror}; the output is incomplete"


def _fault_of_plugin(error: Exception) -> DnnstackError | None:
    """The error as a message if a plugin's code raised it."""
    loading = sys.modules.get(f"{__package__}".replace("cli", "plugins.loading"))
    return None if loading is None else loading.fault_of_plugin(error)
