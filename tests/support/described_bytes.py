"""Memory as stored texts name it: by tensors and contents, never by addresses."""

from __future__ import annotations

import ctypes
import zlib
from bisect import bisect_right, insort
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from dnnstack.backends.base import BoundCall
from numpy.typing import NDArray

# From here on numbers that no address and no size is stand for things of a library.
FIRST_HANDLE = 0x5EED_0000_0000
# Numbers of a table that are shown; of more their digest.
SHOWN = 24


class Addresses:
    """What lies where. Memory that is noted here is never given to others.

    An address is the tensor that begins there, or bytes behind one that begins before; else what
    was written there when it was noted; else the how manieth unknown memory this is.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._known: dict[int, tuple[int, str, Any]] = {}
        self._names: dict[int, str] = {}
        self._named: list[int] = []
        self._numbers: dict[int, int] = {}

    def note(self, pointer: int, size: int, kind: str, held: NDArray[Any]) -> None:
        """``size`` bytes, made for ``kind``; none: the contents say what it is."""
        insort(self._starts, pointer)
        self._known[pointer] = (size, kind, held)

    def call(self, names: Mapping[int, str]) -> None:
        """Name what begins at these addresses, and count what is unknown from the start."""
        self._names, self._named, self._numbers = dict(names), sorted(names), {}

    def start(self, pointer: int) -> int | None:
        """Where the memory begins that an address lies in."""
        at = bisect_right(self._starts, pointer) - 1
        if at < 0:
            return None
        start = self._starts[at]
        return start if pointer < start + max(1, self._known[start][0]) else None

    def place(self, pointer: int) -> str | None:
        """The text of an address; None for a number that is none."""
        start = self.start(pointer)
        if start is None:
            return None
        at = bisect_right(self._named, pointer) - 1
        if at >= 0 and self._named[at] >= start:
            name, behind = self._names[self._named[at]], pointer - self._named[at]
        else:
            name, behind = self._unnamed(start), pointer - start
        return f"{name}+{behind}" if behind else name

    def within(self, pointer: int) -> str:
        """Where in its memory an address lies."""
        start = self.start(pointer)
        assert start is not None
        return f"{pointer - start} of {self._known[start][0]}"

    def _unnamed(self, start: int) -> str:
        size, kind, held = self._known[start]
        if not kind:
            return f"[{self.contents(held)}]"
        return f"{kind} {self._numbers.setdefault(start, len(self._numbers))} of {size}"

    def contents(self, array: NDArray[Any]) -> str:
        """The numbers of an array, in which addresses stand for what lies there."""
        flat = array.reshape(-1)
        if flat.nbytes % 8 == 0 and flat.dtype in (np.uint8, np.uint64, np.int64):
            words = [self.place(word) or _halves(word) for word in flat.view(np.uint64).tolist()]
        elif flat.size > SHOWN:
            return f"{flat.size} {flat.dtype}: {zlib.crc32(flat.tobytes()):08x}"
        else:
            words = [str(value) for value in flat]
        if len(words) <= SHOWN:
            return " ".join(words)
        return f"{len(words)} {flat.dtype}: {zlib.crc32(' '.join(words).encode()):08x}"


def _halves(word: int) -> str:
    return str(word) if word < 1 << 31 else f"{word & 0xFFFFFFFF},{word >> 32}"


def call_text(call: BoundCall) -> str:
    """A call as an explanation of a step shows it."""
    origin = " ".join(f"{each.layer}/{each.phase}" for each in call.op.origin)
    shown = " ".join(f"{key}={value}" for key, value in call.arguments.items())
    what = f"{type(call.op).__name__} {call.library} {call.function} {call.implementation}"
    return f"{origin}: {what}: {shown}"


def digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


Text = Callable[[int], str | None]


def plain(value: Any, place: Text, known: Text) -> str:
    """An argument of a function of a library, as text. known: what handles stand for."""
    value = getattr(value, "_as_parameter_", value)
    value = getattr(value, "_obj", value)
    if isinstance(value, ctypes.Structure):
        shown = [getattr(value, name) for name, *_ in value._fields_]
        return f"<{', '.join(plain(each, place, known) for each in shown)}>"
    if isinstance(value, ctypes.Array):
        return f"[{' '.join(plain(each, place, known) for each in value)}]"
    value = getattr(value, "value", value)
    if isinstance(value, bool | np.bool_):
        return str(int(value))
    if isinstance(value, int):
        return known(value) or place(value) or str(value)
    if isinstance(value, np.ndarray):
        return place(value.ctypes.data) or "?"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value}"
    return "null" if value is None else str(value)
