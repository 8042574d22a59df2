"""Ownership of native objects: a single owner keeps the parents alive and frees the object once."""

from __future__ import annotations

import weakref
from collections.abc import Callable


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
