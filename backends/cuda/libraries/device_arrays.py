"""Arrays on the device: row-major, written, read and copied on the present stream.

They offer what CuPy's arrays of the same names do, without arithmetic; ``cupy.asarray`` shares
their memory (``__cuda_array_interface__``).
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np
from cupy_backends.cuda.api import runtime
from numpy.typing import NDArray

from ....common.native import Owned
from .device_pool import Memory, Pool
from .driver import ran_out
from .streams import present_stream

Host = NDArray[Any]
Sizes = int | tuple[int, ...]


def _spare() -> None:
    """Free what CuPy holds in reserve, once a search for plans has used it."""
    # Another thread may be importing it.
    if found := getattr(sys.modules.get("cupy"), "get_default_memory_pool", None):
        found().free_all_blocks()


def _allocated(size: int) -> int:
    try:
        return int(runtime.malloc(size))
    except runtime.CUDARuntimeError as error:
        raise _of_memory(error) from None


def _of_memory(error: Exception) -> Exception:
    """MemoryError for what says that memory ran out, else the error itself."""
    return MemoryError(str(error)) if ran_out(error) else error


pool = Pool(_allocated, runtime.free, _spare)


class DeviceArray:
    """A row-major array at an address; ``memory``: what keeps that alive."""

    def __init__(self, memory: object, ptr: int, shape: tuple[int, ...], dtype: Any) -> None:
        self._memory = memory
        self.ptr, self.shape, self.dtype = ptr, shape, np.dtype(dtype)
        self.size = prod(shape)
        self.itemsize = self.dtype.itemsize
        self.nbytes = self.size * self.itemsize

    @property
    def data(self) -> DeviceArray:
        """Where CuPy's arrays have their ``ptr``."""
        return self

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        held = {"data": (self.ptr, False), "shape": self.shape, "typestr": self.dtype.str}
        return {**held, "strides": None, "version": 3}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeviceArray:
        """Some of its rows, one behind the other; they share its memory."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"rows of a device array follow each other, not {step} apart")
        inner = self.shape[1:]
        at = self.ptr + start * prod(inner) * self.itemsize
        return DeviceArray(self._memory, at, (max(stop - start, 0), *inner), self.dtype)

    def view(self, dtype: Any) -> DeviceArray:
        """The same bytes as numbers of another type; flat."""
        count, rest = divmod(self.nbytes, np.dtype(dtype).itemsize)
        if rest:
            raise ValueError(f"{self.nbytes} bytes are no whole number of {dtype}")
        return DeviceArray(self._memory, self.ptr, (count,), dtype)

    def reshape(self, shape: tuple[int, ...]) -> DeviceArray:
        if prod(shape) != self.size:
            raise ValueError(f"an array of shape {self.shape} cannot have the shape {shape}")
        return DeviceArray(self._memory, self.ptr, shape, self.dtype)

    def set(self, values: Host) -> None:
        """Copy a host array of the same type and size; it may change as soon as this returns."""
        if values.dtype != self.dtype or values.size != self.size:
            found = f"{values.dtype} {values.shape}"
            raise ValueError(f"{self.dtype} {self.shape} on the device cannot hold {found}")
        held = np.ascontiguousarray(values)
        _copy(self.ptr, held.ctypes.data, self.nbytes, runtime.memcpyHostToDevice)
        runtime.streamSynchronize(present_stream())

    def get(self) -> Host:
        """A copy on the host, behind what was launched on the present stream."""
        found = np.empty(self.shape, self.dtype)
        _copy(found.ctypes.data, self.ptr, self.nbytes, runtime.memcpyDeviceToHost)
        runtime.streamSynchronize(present_stream())
        return found

    def fill(self, byte: int) -> None:
        """Set every byte."""
        if self.nbytes:
            runtime.memsetAsync(self.ptr, byte, self.nbytes, present_stream())

    def copy(self) -> DeviceArray:
        """Another array that holds the same."""
        made = empty(self.shape, self.dtype)
        _copy(made.ptr, self.ptr, self.nbytes, runtime.memcpyDeviceToDevice)
        return made


def _copy(target: int, source: int, nbytes: int, kind: int) -> None:
    if nbytes:
        runtime.memcpyAsync(target, source, nbytes, kind, present_stream())


def empty(shape: Sizes, dtype: Any) -> DeviceArray:
    """An array of what its memory held before. Raises MemoryError."""
    sizes = tuple(map(int, np.atleast_1d(shape)))
    memory: Memory = pool.take(prod(sizes) * np.dtype(dtype).itemsize, present_stream())
    return DeviceArray(memory, memory.ptr, sizes, dtype)


def zeros(shape: Sizes, dtype: Any) -> DeviceArray:
    made = empty(shape, dtype)
    made.fill(0)
    return made


def zeros_like(array: DeviceArray) -> DeviceArray:
    return zeros(array.shape, array.dtype)


def asarray(values: Any, dtype: Any = None) -> DeviceArray:
    """A copy of a host array or of numbers."""
    host = np.asarray(values, dtype)
    made = empty(host.shape, host.dtype)
    made.set(host)
    return made


def ones(shape: Sizes, dtype: Any) -> DeviceArray:
    return asarray(np.ones(shape, dtype))


def at_address(ptr: int, size: int) -> DeviceArray:
    """Bytes on the device that are held elsewhere."""
    return DeviceArray(None, ptr, (size,), "uint8")


# Page-locked memory that nobody uses, by its size: freeing it would wait for the device, so that is
# done where other sizes are wanted.
_pinned: dict[int, list[int]] = {}


class Pinned:
    """Page-locked bytes of the host, which the device copies without help; ``numpy.asarray`` shows
    them."""

    def __init__(self, size: int) -> None:
        known = _pinned.setdefault(size, [])
        try:
            ptr = known.pop()
        except IndexError:
            _free_pinned()
            try:
                ptr = int(runtime.hostAlloc(size, runtime.hostAllocDefault))
            except runtime.CUDARuntimeError as error:
                raise _of_memory(error) from None
        self._owned = Owned(ptr, known.append)
        held = {"data": (ptr, False), "shape": (size,)}
        self.__array_interface__ = {**held, "typestr": "|u1", "version": 3}


def _free_pinned() -> None:
    for unused in _pinned.values():
        while unused:
            runtime.freeHost(unused.pop())
