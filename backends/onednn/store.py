"""What all sections of an executable share: parameter arenas, state, data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...common.errors import ShapeError
from ...graph.graph import Tensor
from ..base import Array
from .memory import ALIGNMENT, Descriptor, Memory, aligned
from .primitive import copy


@dataclass
class DataSet:
    """The array that was written last, by reference."""

    array: NDArray[np.generic]


@dataclass
class Store:
    """Memories of float32 tensors, arrays of the others, and the data sets.

    An arena is a buffer in which tensors lie one behind the other, each in its layout, 64-byte
    aligned. Padding is zero and stays zero under every update, so one call may run over all of it.
    ``spans``: the arena that holds a tensor, and its first and last byte there.
    """

    memories: dict[Tensor, Memory] = field(default_factory=dict)
    arrays: dict[Tensor, NDArray[np.generic]] = field(default_factory=dict)
    data: dict[Tensor, DataSet] = field(default_factory=dict)
    arenas: dict[str, NDArray[np.uint8]] = field(default_factory=dict)
    spans: dict[Tensor, tuple[str, int, int]] = field(default_factory=dict)

    def add_arena(
        self, name: str, tensors: Sequence[Tensor], layouts: Mapping[Tensor, Descriptor]
    ) -> None:
        end = 0
        for tensor in tensors:
            start, end = end, end - (-layouts[tensor].nbytes // ALIGNMENT) * ALIGNMENT
            self.spans[tensor] = name, start, end
        self.arenas[name] = aligned(end)
        for tensor in tensors:
            _, start, stop = self.spans[tensor]
            self.memories[tensor] = Memory(layouts[tensor], self.arenas[name][start:stop])

    def clear(self) -> None:
        """Zeros in all but data sets."""
        for arena in self.arenas.values():
            arena[:] = 0
        for tensor, memory in self.memories.items():
            if tensor not in self.spans:
                memory.bytes[:] = 0
        for tensor, array in self.arrays.items():
            if tensor.role != "data":
                array[...] = 0

    def flat(self, tensors: Sequence[Tensor]) -> Memory:
        """One row-major memory over neighbours of one arena, padding included."""
        names, starts, stops = zip(*(self.spans[tensor] for tensor in tensors), strict=True)
        if len(set(names)) != 1:
            raise ShapeError("an update runs over tensors of different arenas")
        if starts[1:] != stops[:-1]:
            raise ShapeError("an update runs over tensors that do not lie side by side")
        buffer = self.arenas[names[0]][starts[0] : stops[-1]]
        return Memory(Descriptor.of((buffer.nbytes // 4,)), buffer)


def store_plain(memory: Memory, tensor: Tensor, array: Array) -> None:
    """Copy a canonical array into a memory of any layout."""
    source = Memory.plain(tensor_dims(tensor, memory))
    source.array(tensor.shape)[...] = array
    copy(source, memory)


def load_plain(memory: Memory, tensor: Tensor) -> NDArray[np.float32]:
    """The canonical array of a memory of any layout."""
    if is_plain(memory, tensor):
        # A primitive for it takes longer than to copy the answers of a batch.
        return memory.array(tensor.shape).copy()
    target = Memory.plain(tensor_dims(tensor, memory))
    copy(memory, target)
    return target.array(tensor.shape).copy()


def is_plain(memory: Memory, tensor: Tensor) -> bool:
    """Whether the memory of a tensor is its canonical array already."""
    return memory.descriptor == Descriptor.of(tensor_dims(tensor, memory))


def tensor_dims(tensor: Tensor, memory: Memory) -> tuple[int, ...]:
    """The dimensions that oneDNN sees: filters of a grouped convolution have one more."""
    shape = memory.descriptor.shape
    return shape if len(shape) != len(tensor.shape) else tensor.shape
