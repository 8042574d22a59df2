"""An array in a file of weights, which is read as float32 once it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....graph.graph import Shape

MOST_ARRAYS = 1 << 16
"""In a file: large networks have some thousands."""
# Bits of a number of each type; the numbers of those in _NUMPY can be read.
BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16}
BITS |= {"U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "C64": 64}
BITS |= {"I64": 64, "U64": 64, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
_NUMPY = {"F16": "f2", "BF16": "u2", "F32": "f4", "F64": "f8"}


@dataclass(frozen=True)
class StoredArray:
    """An array of a file: its type there, its shape, and its bytes, from its first number on.

    ``strides``: numbers from one entry of an axis to the next, None if the last axis lies densest
    and nothing between; ``order``: of the bytes of a number, as NumPy writes it.
    """

    dtype: str
    shape: Shape
    data: memoryview
    strides: Shape | None = None
    order: str = "<"

    @property
    def is_readable(self) -> bool:
        """Whether its numbers are of a floating-point type that float32 can stand for."""
        return self.dtype in _NUMPY

    def values(self) -> NDArray[np.float32]:
        """The numbers as float32; those of float64 are rounded, beyond its range to infinity."""
        kind = np.dtype(self.order + _NUMPY[self.dtype])
        steps = None if self.strides is None else tuple(kind.itemsize * n for n in self.strides)
        stored: NDArray[Any] = np.ndarray(self.shape, kind, self.data, strides=steps)
        if self.dtype == "BF16":
            # The upper half of a float32.
            return (stored.astype(np.uint32) << 16).view(np.float32)
        with np.errstate(over="ignore"):
            return np.asarray(stored.astype(np.float32))
