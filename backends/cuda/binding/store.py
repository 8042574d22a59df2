"""What the sections of an executable share: parameters, states, data sets, in arenas."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ....graph.graph import Shape, Tensor
from ..libraries.layout import BFLOAT, Layout, padded
from ..libraries.runtime import address_of
from .buffer import Buffer
from .ending import NextBatch
from .feeds import Feeds
from .pictures import Host, Pictures
from .small_sums import SmallSums

# Every tensor of an arena begins at a multiple of 128 bytes, and owns whole tiles of it.
TILE = 32
PARAMETERS = "parameters"
# Sums of gradients over the parts of a batch, which all sections share.
SUMS = "sums"
# Steps that a table has room for at least.
LEAST_ROOM = 4096


def _room(tensor: Tensor, shape: Shape) -> Shape:
    """The shape of the device's array: tables do not move as long as they are not much longer."""
    if tensor.dtype != "float32":
        return shape
    return (max(LEAST_ROOM, 1 << (shape[0] - 1).bit_length()), *shape[1:])


class Store:
    """Buffers by tensor; arenas hold the families of the optimizers, one tensor behind the other.

    ``cuda``: cuda_api.py, or what stands for it in a dry run. ``generation`` counts the data sets
    that moved: a captured graph of before is stale. ``pictures``: where data sets come from and go
    to that are on the device already.
    """

    def __init__(self, cuda: Any, pictures: Pictures | None = None) -> None:
        self.cuda = cuda
        self._pictures = pictures or Pictures()
        # The host's arrays that are on the device, as far as nobody can change them.
        self._sources: dict[Tensor, Host] = {}
        self._lengths: dict[Tensor, int] = {}
        self.buffers: dict[Tensor, Buffer] = {}
        self.data: dict[Tensor, Any] = {}
        self.arenas: dict[str, Any] = {}
        self.spans: dict[Tensor, tuple[str, int, int]] = {}
        self.generation = 0
        # What small sums over ranks do besides.
        self.small_sums = SmallSums()
        # By its counter of steps, the batch of the section that was bound last: see NextBatch.
        self.batches: dict[Tensor, NextBatch] = {}
        # Bytes of the memory that ranks share, by their number and its size.
        self.peer_memory: dict[tuple[int, int], int] = {}
        # Data sets that stay in host memory, if that was asked for.
        self.feeds = Feeds({}, lambda tensor: 0, cuda)
        self._bf16_copies: dict[Tensor, Buffer] = {}

    def data_of(self, tensor: Tensor) -> Any:
        """The device array of a data set, made when first asked for."""
        if tensor not in self.data:
            held = self._pictures.take(tensor)
            if held is not None:
                self._sources[tensor], self.data[tensor] = held
            else:
                self.data[tensor] = self.cuda.zeros(_room(tensor, tensor.shape), tensor.dtype)
        return self.data[tensor]

    def write_data(self, tensor: Tensor, array: Host) -> None:
        """Copy a data set to the device, unless it is there."""
        if self._sources.get(tensor) is array and not array.flags.writeable:
            return
        self._sources.pop(tensor, None)
        self._lengths[tensor] = len(array)
        if self.data[tensor].shape != _room(tensor, array.shape):
            self.data[tensor] = self.cuda.zeros(_room(tensor, array.shape), tensor.dtype)
            self.generation += 1
        self.data[tensor][: len(array)].set(np.ascontiguousarray(array))
        if not array.flags.writeable:
            self._sources[tensor] = array

    def read_data(self, tensor: Tensor) -> Host:
        """A copy of what was written."""
        count = self._lengths.get(tensor, tensor.shape[0])
        return np.asarray(self.data[tensor][:count].get())

    def clear(self) -> None:
        """Zeros in all but data sets, as after binding."""
        for arena in self.arenas.values():
            arena.fill(0)
        for _, buffer in self.alone():
            buffer.array.fill(0)

    def close(self) -> None:
        """Leave pictures to the next one, and forget everything: an error's traceback may refer to
        this."""
        for tensor, array in self._sources.items():
            self._pictures.give(tensor, array, self.data[tensor])
        self.feeds.close()
        vars(self).clear()

    def zeros(self, layout: Layout) -> Buffer:
        """A new buffer, zeroed."""
        return Buffer(self.cuda.zeros(layout.size, layout.item), layout)

    def add_arena(self, name: str, layouts: dict[Tensor, Layout]) -> None:
        """Lay tensors side by side, zeroed."""
        ends = [0, *accumulate(padded(layout.size, TILE) for layout in layouts.values())]
        arena = self.arenas[name] = self.cuda.zeros(ends[-1], "float32")
        for (tensor, layout), (start, stop) in zip(layouts.items(), pairwise(ends), strict=True):
            self.spans[tensor] = (name, start, stop)
            self.buffers[tensor] = Buffer(arena[start : start + layout.size], layout)

    def add_mirror(self, name: str, tensors: dict[Tensor, Tensor]) -> None:
        """Lay tensors at the places that their parameters have in theirs, zeroed."""
        if name not in self.arenas:
            self.arenas[name] = self.cuda.zeros_like(self.arenas[PARAMETERS])
        for tensor, parameter in tensors.items():
            _, start, stop = self.spans[parameter]
            layout = self.buffers[parameter].layout
            self.spans[tensor] = (name, start, stop)
            self.buffers[tensor] = Buffer(self.arenas[name][start : start + layout.size], layout)

    def gradients(self, section: str) -> dict[Tensor, Buffer]:
        """The buffers of the gradients that lie here and belong to a section."""
        held = self.buffers.items()
        return {tensor: buffer for tensor, buffer in held if tensor.section == section}

    def stretch(self, tensors: Sequence[Tensor]) -> tuple[str, int, int]:
        """The arena that holds the tensors, and where the first begins and the last ends."""
        spans = [self.spans[tensor] for tensor in tensors]
        return spans[0][0], min(span[1] for span in spans), max(span[2] for span in spans)

    def in_bf16(self) -> frozenset[Tensor]:
        """The parameters that have a copy in bfloat16, which operations read."""
        return frozenset(self._bf16_copies)

    def bf16_copy(self, tensor: Tensor) -> Buffer:
        """The bfloat16 copy of a parameter; whoever changes the parameter renews it."""
        if tensor not in self._bf16_copies:
            layout = replace(self.buffers[tensor].layout, dtype=BFLOAT)
            if tensor in self.spans:
                name, start, _ = self.spans[tensor]
                part = self.bf16_arena(name)[start : start + layout.size]
                self._bf16_copies[tensor] = Buffer(part, layout)
            else:
                self._bf16_copies[tensor] = self.zeros(layout)
        return self._bf16_copies[tensor]

    def bf16_arena(self, name: str = PARAMETERS) -> Any:
        """The bfloat16 copy of an arena, made when first asked for."""
        key = f"{name}.bfloat16"
        if key not in self.arenas:
            self.arenas[key] = self.cuda.zeros(self.arenas[name].size, "uint16")
        return self.arenas[key]

    def alone(self) -> Iterator[tuple[Tensor, Buffer]]:
        """The buffers that lie in no arena."""
        held = (*self.buffers.items(), *self._bf16_copies.items())
        return ((tensor, buffer) for tensor, buffer in held if tensor not in self.spans)

    @property
    def has_bf16(self) -> bool:
        """Whether anybody reads the trained parameters in bfloat16."""
        return f"{PARAMETERS}.bfloat16" in self.arenas

    def bf16_pointer(self, tensor: Tensor) -> int:
        """Address of the bfloat16 copy, which whoever changes the tensor renews; 0 for none."""
        name, start, _ = self.spans.get(tensor, ("", 0, 0))
        if name == PARAMETERS and self.has_bf16:
            return address_of(self.bf16_arena()[start:])
        return self._bf16_copies[tensor].pointer if tensor in self._bf16_copies else 0

    def renew(self, tensor: Tensor, packed: Callable[[], Any]) -> None:
        """Write the bfloat16 copy, if there is one; packed: makes its flat host array."""
        if tensor in self._bf16_copies:
            self._bf16_copies[tensor].array.set(packed())
