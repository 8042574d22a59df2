"""Where a tensor lies on the device."""

from __future__ import annotations

from ctypes import c_void_p
from typing import Any

from ....common.records import dataclass
from ..libraries.layout import Layout
from ..libraries.runtime import address_of


@dataclass
class Buffer:
    """A flat device array and how a tensor lies in it."""

    array: Any
    layout: Layout

    @property
    def pointer(self) -> int:
        return address_of(self.array)

    @property
    def _as_parameter_(self) -> c_void_p:
        """What a function of a library gets."""
        return c_void_p(self.pointer)

    @property
    def dtype(self) -> str:
        return self.layout.dtype
