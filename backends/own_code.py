"""Compiled code of a user's own, called on arrays between guards; see lab/guard.c."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .base import Array

# Arrays by name, numbers: -> seconds, and whether it took them.
Call = Callable[[Mapping[str, Array], Sequence[float]], tuple[float, bool]]


class Guarded:
    """A library that has lab_call and lab_map; in a process of its own, which a fault ends."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.lab_map.restype = ctypes.c_void_p
        # The library keeps their addresses.
        self._names: dict[str, bytes] = {}

    def watch(self) -> None:
        """From now on a fault ends this process, and is told on standard error."""
        self._library.lab_watch()

    def call(self, arrays: Mapping[str, Array], numbers: Sequence[float]) -> tuple[float, bool]:
        """The kernel on arrays as they are, which are contiguous."""
        pointers = (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays.values()))
        given = (ctypes.c_double * max(len(numbers), 1))(*numbers)
        begin = time.perf_counter()
        status = self._library.lab_call(pointers, given)
        return time.perf_counter() - begin, status == 0

    def guarded(
        self,
        arrays: Mapping[str, Array],
        numbers: Sequence[float],
        given: Sequence[str],
        late: bool,
    ) -> tuple[float, bool]:
        """The same between guards; those that are ``given`` can only be read, others are copied
        back."""
        held = {name: self._mapped(i, name, a, late) for i, (name, a) in enumerate(arrays.items())}
        for at, name in enumerate(arrays):
            if name in given:
                self._library.lab_protect(at)
        found = self.call(held, numbers)
        for at, (name, array) in enumerate(arrays.items()):
            if name not in given:
                array[...] = held[name]
            self._library.lab_unmap(at)
        return found

    def _mapped(self, at: int, name: str, array: Array, late: bool) -> Array:
        named = self._names.setdefault(name, name.encode())
        sizes = ctypes.c_long(array.size), ctypes.c_long(array.itemsize)
        address = self._library.lab_map(at, named, *sizes, int(late))
        if not address:
            raise MemoryError
        memory: Any = (ctypes.c_char * array.nbytes).from_address(address)
        found: Array = np.frombuffer(memory, array.dtype).reshape(array.shape)
        found[...] = array
        return found
