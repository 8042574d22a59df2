"""Foreign libraries: ownership of their objects, and what they would print."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable


class Owned:
    """A native handle with one owner.

    ``destroy(handle)`` runs once: at ``close``, when the owner is collected, or at exit. The
    parents (an engine, the buffers a handle points to) live at least as long.
    """

    def __init__(self, handle: int, destroy: Callable[[int], object], *parents: object) -> None:
        self.handle = handle
        self._parents = parents
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
