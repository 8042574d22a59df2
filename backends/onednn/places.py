"""Memory that activations share: each takes the place of others that are no longer needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from ...graph.graph import Graph, Tensor
from .memory import Descriptor, Memory


@dataclass
class _Place:
    """A buffer and the tensors that lie, or lay, in it."""

    memory: Memory
    tensors: set[Tensor] = field(default_factory=set)


class Places:
    """The buffers of a section's activations, given out in the order of its operations.

    A tensor is needed from the operation that writes it to the last that reads it; a result to the
    end. Best fit: of the buffers that are free the smallest that is large enough.
    """

    def __init__(self, graph: Graph) -> None:
        self._last: dict[Tensor, float] = {}
        for position, op in enumerate(graph.ops):
            self._last.update(dict.fromkeys((*op.reads(), *op.writes()), position))
        self._last.update(dict.fromkeys(graph.results.values(), inf))
        self._places: list[_Place] = []

    def take(
        self, tensor: Tensor, descriptor: Descriptor, position: int
    ) -> tuple[Memory, Iterable[Tensor]]:
        """Memory for a tensor at the operation of this number, and whose it was before."""
        size = max(descriptor.nbytes, 4)
        free = [
            place
            for place in self._places
            if place.memory.buffer.nbytes >= size
            and all(self._last.get(t, inf) < position for t in place.tensors)
        ]
        if not free:
            place = _Place(Memory(descriptor), {tensor})
            self._places.append(place)
            return place.memory, ()
        place = min(free, key=lambda place: place.memory.buffer.nbytes)
        before, place.tensors = place.tensors, {tensor}
        return place.memory.view(descriptor), before - {tensor}

    def join(self, tensor: Tensor, memory: Memory) -> None:
        """Say that a tensor lies in the same bytes as ``memory``."""
        for place in self._places:
            if place.memory.buffer.ctypes.data == memory.buffer.ctypes.data:
                place.tensors.add(tensor)
