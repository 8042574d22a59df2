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


class Arena:
    """Tensors one behind the other in one buffer, each in its layout, 64-byte aligned.

    Padding is zero and stays zero under every update, so one call may run over the whole buffer.
    """

    def __init__(self, tensors: Sequence[Tensor], layouts: Mapping[Tensor, Descriptor]) -> None:
        self.spans: dict[Tensor, tuple[int, int]] = {}
        end = 0
        for tensor in tensors:
            nbytes = -(-layouts[tensor].nbytes // ALIGNMENT) * ALIGNMENT
            self.spans[tensor] = (end, end + nbytes)
            end += nbytes
        self.buffer = aligned(end)
        self.memories = {
            tensor: Memory(layouts[tensor], self.buffer[start:stop])
            for tensor, (start, stop) in self.spans.items()
        }


@dataclass
class Store:
    """Memories of float32 tensors, arrays of the others, and the data sets by reference."""

    memories: dict[Tensor, Memory] = field(default_factory=dict)
    arrays: dict[Tensor, NDArray[np.generic]] = field(default_factory=dict)
    arenas: dict[str, Arena] = field(default_factory=dict)
    owners: dict[Tensor, str] = field(default_factory=dict)

    def add_arena(
        self, name: str, tensors: Sequence[Tensor], layouts: Mapping[Tensor, Descriptor]
    ) -> None:
        arena = Arena(tensors, layouts)
        self.arenas[name] = arena
        self.memories.update(arena.memories)
        self.owners.update(dict.fromkeys(tensors, name))

    def place(self, tensor: Tensor) -> tuple[str, int, int]:
        """The arena that holds a tensor, and its first and last byte there."""
        name = self.owners[tensor]
        return name, *self.arenas[name].spans[tensor]

    def flat(self, tensors: Sequence[Tensor]) -> Memory:
        """One row-major memory over neighbours of one arena, padding included."""
        names, starts, stops = zip(*map(self.place, tensors), strict=True)
        if len(set(names)) != 1:
            raise ShapeError("an update runs over tensors of different arenas")
        if starts[1:] != stops[:-1]:
            raise ShapeError("an update runs over tensors that do not lie side by side")
        buffer = self.arenas[names[0]].buffer[starts[0] : stops[-1]]
        return Memory(Descriptor.of((buffer.nbytes // 4,)), buffer)


def store_plain(memory: Memory, tensor: Tensor, array: Array) -> None:
    """Copy a canonical array into a memory of any layout."""
    source = Memory.plain(tensor_dims(tensor, memory))
    source.array(tensor.shape)[...] = array
    copy(source, memory)


def load_plain(memory: Memory, tensor: Tensor) -> NDArray[np.float32]:
    """The canonical array of a memory of any layout."""
    target = Memory.plain(tensor_dims(tensor, memory))
    copy(memory, target)
    return target.array(tensor.shape).copy()


def tensor_dims(tensor: Tensor, memory: Memory) -> tuple[int, ...]:
    """The dimensions that oneDNN sees: filters of a grouped convolution have one more."""
    shape = memory.descriptor.shape
    return shape if len(shape) != len(tensor.shape) else tensor.shape
