"""What stands for a device in a dry run of binding, which counts what would be allocated.

Store, Feeds, Binder and the operations take it for cuda_api.py and a stream with its libraries.
Nothing is allocated or launched. Needs no GPU, no CuPy and no frontend of cuDNN's.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from .binding.launches import Stream
from .libraries.conv_plans import WORKSPACE_LIMIT
from .libraries.layout import padded

# The pool rounds every allocation up to a multiple of this.
ALIGNMENT = 512


class Silent:
    """Stands for what does nothing in a dry run: libraries, events, kernels, plans.

    Whatever is asked of it, or called on it, gives itself. As a plan of a convolution it takes all
    the workspace that one may take.
    """

    handle = ptr = 0
    shown: Any = ()
    workspace_bytes = WORKSPACE_LIMIT

    def __getattr__(self, name: str) -> Any:
        return self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __call__(self, *_: object, **__: object) -> Any:
        return self


class Array(Silent):
    """Stands for a device array; ``taken``: the bytes that it would take of the pool."""

    def __init__(self, shape: int | tuple[int, ...], dtype: Any) -> None:
        self.size = int(np.prod(shape, dtype=object))
        self.dtype = np.dtype(dtype)
        self.nbytes = self.size * self.dtype.itemsize
        self.taken = padded(self.nbytes, ALIGNMENT)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, part: slice) -> Array:
        return Array(len(range(*part.indices(self.size))), self.dtype)


class Cuda(Silent):
    """Stands for cuda_api.py; ``taken``: the bytes that all its arrays would take."""

    def __init__(self) -> None:
        self.taken = 0

    def empty(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        array = Array(shape, dtype)
        self.taken += array.taken
        return array

    zeros = ones = empty

    def zeros_like(self, array: Array) -> Array:
        return self.empty(array.size, array.dtype)

    def asarray(self, values: Any, dtype: Any = None) -> Array:
        host = np.asarray(values, dtype)
        return self.empty(host.shape, host.dtype)


_SILENT: Any = Silent()
STREAM = Stream(*[_SILENT] * (len(fields(Stream)) - 1))
