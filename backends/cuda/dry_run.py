"""A dry run: what binding would allocate is counted, and nothing is allocated or launched.

Store, Feeds, Binder and the operations run as on a device, with stand-ins for CuPy and for a stream
with its libraries. Needs no GPU, no CuPy and no frontend of cuDNN's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from .binding.launch_list import Stream
from .libraries.conv_graph import WORKSPACE_LIMIT
from .libraries.layout import padded

# CuPy's pool rounds every allocation up to a multiple of this.
ALIGNMENT = 512


def rounded(size: int) -> int:
    """What the pool takes for an array of so many bytes."""
    return padded(size, ALIGNMENT)


class Array:
    """Stands for a device array: it has sizes, and an address where nothing is."""

    def __init__(self, pointer: int, shape: int | Sequence[int], dtype: Any) -> None:
        self.ptr = pointer
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        self.size = prod(self.shape)
        self.nbytes = self.size * self.dtype.itemsize

    @property
    def data(self) -> Array:
        """What has the address, ``ptr``."""
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: slice) -> Array:
        """A part of a flat array."""
        (size,) = self.shape
        start, stop, _ = part.indices(size)
        pointer = self.ptr + start * self.dtype.itemsize
        return Array(pointer, max(stop - start, 0), self.dtype)

    def reshape(self, shape: Sequence[int]) -> Array:
        return Array(self.ptr, shape, self.dtype)

    def view(self, dtype: str) -> Array:
        """A flat array's bytes as another type."""
        return Array(self.ptr, self.nbytes // np.dtype(dtype).itemsize, dtype)


class Silent:
    """Stands for what does nothing in a dry run: libraries, events, kernels, plans.

    Whatever is asked of it, or called on it, gives itself. As a plan of a convolution it takes all
    the workspace that one may take.
    """

    handle = 0
    shown = ()
    workspace_bytes = WORKSPACE_LIMIT

    def __getattr__(self, name: str) -> Silent:
        return self

    def __getitem__(self, key: object) -> Silent:
        return self

    def __call__(self, *_: object, **__: object) -> Silent:
        return self


_SILENT: Any = Silent()
STREAM = Stream(*[_SILENT] * len(fields(Stream)))


class Cupy:
    """Stands for CuPy; ``taken``: the bytes of device memory of all arrays that it has made."""

    def __init__(self) -> None:
        self.taken = 0
        # Page-locked memory is the host's; nobody writes it, so it takes none.
        pinned = partial(np.empty, dtype=np.uint8)
        self.cuda = SimpleNamespace(Event=_SILENT, Stream=_SILENT, alloc_pinned_memory=pinned)

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Array:
        array = Array(self.taken, shape, dtype)
        self.taken += rounded(array.nbytes)
        return array

    zeros = ones = empty

    def zeros_like(self, array: Array) -> Array:
        return self.empty(array.shape, array.dtype)

    def asarray(self, values: Any, dtype: Any = None) -> Array:
        host = np.asarray(values, dtype)
        return self.empty(host.shape, host.dtype)
