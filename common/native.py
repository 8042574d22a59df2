"""Foreign libraries: ownership of their objects, and what they would print."""

from __future__ import annotations

import contextlib
import signal
import weakref
from collections.abc import Callable, Iterable

# Numbers of mallopt in glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# PR_SET_PDEATHSIG of linux/prctl.h.
_PARENT_DEATH = 1
_KEPT_BYTES, _LARGEST_KEPT = 128 << 20, 32 << 20


class Owned:
    """A native handle with one owner.

    ``destroy(handle)`` runs once: at ``close``, when the owner is collected, or at exit. The
    parents (an engine, the buffers a handle points to) live at least as long.
    """

    def __init__(self, handle: int, destroy: Callable[[int], object], *parents: object) -> None:
        self.handle, self._parents = handle, parents
        self._finalizer = weakref.finalize(self, destroy, handle)

    def close(self) -> None:
        """Free the handle now; a second call does nothing."""
        self._finalizer()
        self._parents = ()


def set_no_handlers(library: str, functions: Iterable[str]) -> None:
    """Call functions of a library, or of those that it needs, with NULL in place of a handler.

    Those after one that cannot be found are not called.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        loaded = ctypes.CDLL(library)
        for name in functions:
            function = getattr(loaded, name)
            function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_void_p
            function(None)


def end_with_parent() -> None:
    """Let SIGKILL end this process when the one that started it is gone; on Linux alone."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PARENT_DEATH, signal.SIGKILL)


def keep_freed_memory() -> None:
    """Let the C library keep up to 128 MiB of freed memory, to give it out again.

    glibc returns the memory of large arrays to the kernel, which must clear every page that it
    hands out again: in a step that rotates and scales pictures, for a third of the time. Without
    effect in other C libraries.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):
        change = ctypes.CDLL(None).mallopt
        change(_TRIM_THRESHOLD, _KEPT_BYTES)
        change(_MMAP_THRESHOLD, _LARGEST_KEPT)
