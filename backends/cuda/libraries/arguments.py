"""Arguments of a kernel, as the driver takes them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np


class Arguments:
    """``pointers`` to C values: of device arrays, device pointers (0 for none), NumPy scalars."""

    def __init__(self, arguments: Sequence[Any]) -> None:
        # The arrays, too, must outlive the launch.
        self._given = tuple(arguments)
        self._values = [_value(each) for each in arguments]
        addresses = (ctypes.addressof(value) for value in self._values)
        self.pointers = (ctypes.c_void_p * len(self._values))(*addresses)

    def __len__(self) -> int:
        return len(self._values)


def _value(argument: Any) -> Any:
    """A C value that holds an argument."""
    if isinstance(argument, np.generic):
        known: Any = np.ctypeslib.as_ctypes_type
        return known(argument.dtype)(argument.item())
    if isinstance(argument, int):
        return ctypes.c_void_p(argument)
    return ctypes.c_void_p(int(argument.data.ptr))
