"""The errors and warnings that a user can cause or meet; the command line prints each as a message.

A message says what is wrong, where (file:line, layer, key), and what to do next.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .printable import paragraph, printable

if TYPE_CHECKING:
    from pathlib import Path

    from typing_extensions import Self

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""What the system reports of a disk that is full or fails."""


class DnnstackError(Exception):
    """Base of every error that is reported without a traceback.

    Each argument is a line of the message. A name from outside may be a part of a line, but its
    line breaks begin no other one: in the message it is made printable.
    """

    def __str__(self) -> str:
        return paragraph(self.args)

    def after(self, text: str) -> Self:
        """The same error with ``text`` before its first line."""
        first, *rest = self.args or ("",)
        return type(self)(f"{text}{first}", *rest)


class UsageError(DnnstackError):
    """Wrong usage of a command's options; exit status 2."""


class ConfigError(DnnstackError):
    """A config file, key or value is wrong; the message lists every problem with its place."""


class ShapeError(DnnstackError):
    """Layers do not fit together; the message names the layer, both shapes and the likely fix."""


class DatasetError(DnnstackError):
    """Data is missing, damaged or of the wrong kind; the message names the file."""


class CheckpointError(DnnstackError):
    """A checkpoint or run folder is missing, damaged or does not fit the network."""


@contextmanager
def explaining(
    path: Path, fault: str, advice: str = "", kind: type[DnnstackError] = CheckpointError
) -> Iterator[None]:
    """Raise an OSError of the block as an error of this kind: ``path: fault: why; advice``."""
    try:
        yield
    except OSError as error:
        raise kind(f"{path}: {fault}: {error.strerror}{advice and f'; {advice}'}") from None


class ExportError(DnnstackError):
    """A network cannot leave in this format; the message names the layer or what is missing."""


class TrainingError(DnnstackError):
    """Training cannot continue; the message says at which step and what to change."""


class NonFiniteError(TrainingError):
    """A loss or parameter is infinite or not a number; the last good checkpoint is kept."""


class Interrupted(DnnstackError):
    """A stop was requested before there was anything to save."""


class LockedError(DnnstackError):
    """Another process holds a file or folder that only one may use; the message names it.

    ``holder``: which one, such as ``pid 12 on host``; "" if unknown.
    """

    def __init__(self, text: str, holder: str = "") -> None:
        super().__init__(text)
        self.holder = holder


class BackendUnavailableError(DnnstackError):
    """A device or its libraries cannot be used here; the message says what to install."""


class LibraryError(DnnstackError):
    """A vendor library refused a call.

    ``library`` and ``function`` name the call, ``status`` is the library's name for the failure,
    and ``arguments`` are the arguments that the library received (shapes, layouts).
    """

    def __init__(
        self,
        library: str,
        function: str,
        status: str,
        arguments: Mapping[str, object] | None = None,
        advice: str = "",
    ) -> None:
        self.library, self.function, self.status = library, function, status
        self.arguments = dict(arguments or {})
        listed = ", ".join(f"{key}={value}" for key, value in self.arguments.items())
        text = f"{library}: {function}({listed}) failed: {status}"
        super().__init__(f"{text}; {advice}" if advice else text)


class DnnlError(LibraryError):
    """A oneDNN call failed."""


class CudnnError(LibraryError):
    """A cuDNN call failed."""


class CublasError(LibraryError):
    """A cuBLAS call failed."""


class Warned(str):
    """A notice that something is not as was asked for; told even where other notices are not."""


def only_warned(notice: Callable[[str], None]) -> Callable[[str], None]:
    """A function that passes on to ``notice`` what is Warned, and nothing else."""

    def tell(text: str) -> None:
        if isinstance(text, Warned):
            notice(text)

    return tell


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
    if isinstance(error, OSError) and error.errno in (*_FULL, errno.EBADF, errno.EACCES):
        if error.filename is not None:
            return f"{error.filename}: {error.strerror}"
        if is_of_output(error):
            why = error.strerror
            return f"standard output: cannot be written: {why}; the output is incomplete"
    # A plugin's code raises anything; if one was loaded, its loader knows which errors are its own.
    loading = sys.modules.get(f"{__package__}".replace("common", "plugins.loading"))
    fault = None if loading is None else loading.fault_of_plugin(error)
    return None if fault is None else str(fault)


def is_of_output(error: Exception) -> bool:
    """Whether the system reports it of standard output, which has no file name."""
    return (
        isinstance(error, OSError)
        and error.filename is None
        and error.errno in (*_FULL, errno.EBADF)
    )
