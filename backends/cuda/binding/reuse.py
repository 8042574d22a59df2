"""Memory of activations that no later operation needs, for later ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ....graph.graph import Graph, Op, Tensor
from ..libraries.layout import Layout
from .buffer import Buffer
from .launches import Step

# By so many operations later a kernel may do the work of one that has no launch of its own.
SLACK = 6


@dataclass(eq=False)
class _Held:
    """An array, how what was first in it lies, and the tensors that lie in it now."""

    array: Any
    layout: Layout
    tensors: set[Tensor]


class Reuse:
    """The arrays of a section's pictures (N, C, H, W), given out in the order of ``ops``.

    Without ``ops`` nothing is given twice. An array whose bytes are also seen as rows stays whose
    it is: a dense layer's product may be part of the update.
    """

    def __init__(
        self,
        graph: Graph,
        ops: Sequence[Op],
        zeros: Callable[[Layout], Buffer],
        wait: Callable[[], None],
    ) -> None:
        """``zeros``: makes a buffer; ``wait``: for all that was launched."""
        self._last: dict[Tensor, float] = {}
        for place, op in enumerate(ops):
            self._last.update(dict.fromkeys((*op.reads(), *op.writes()), place))
        self._last.update(dict.fromkeys(graph.results.values(), inf))
        self._zeros, self._wait, self._on = zeros, wait, bool(ops)
        self._held: list[_Held] = []
        self._by_array: dict[int, _Held] = {}
        self._place = 0

    def counted(self, ops: Iterable[Op], steps: Sequence[Step]) -> Iterator[Op]:
        """Each operation in turn, while it is bound to further ``steps``.

        What one reads that has no launch of its own is needed later: another does its work.
        """
        for self._place, op in enumerate(ops):
            before = len(steps)
            yield op
            if not any(step.call is not None and step.call.op is op for step in steps[before:]):
                late = self._place + SLACK
                self._last |= {t: max(self._last.get(t, inf), late) for t in op.reads()}

    def room(self, tensor: Tensor, layout: Layout) -> Buffer:
        """The smallest array that is large enough and free by now, else a new one, zeroed."""
        if not self._on or tensor.role != "activation" or len(tensor.shape) != 4:
            return self._zeros(layout)
        free = [held for held in self._held if self._is_free(held) and _fits(held, layout)]
        if free:
            self._wait()
            held = min(free, key=lambda held: held.layout.size)
            held.tensors = {tensor}
            buffer = Buffer(held.array[: layout.size], layout)
        else:
            buffer = self._zeros(layout)
            held = _Held(buffer.array, layout, {tensor})
            self._held.append(held)
        self._by_array[id(buffer.array)] = held
        return buffer

    def join(self, tensor: Tensor, buffer: Buffer) -> None:
        """Note that a tensor lies in an array, too."""
        if held := self._by_array.get(id(buffer.array)):
            held.tensors.add(tensor)

    def _is_free(self, held: _Held) -> bool:
        return all(
            len(tensor.shape) == 4 and self._last.get(tensor, inf) < self._place
            for tensor in held.tensors
        )


def _fits(held: _Held, layout: Layout) -> bool:
    # Padding is zero, and stays so only where it lies alike.
    dense = all(each.shape == each.stored for each in (held.layout, layout))
    large = held.layout.item == layout.item and held.layout.size >= layout.size
    return held.layout.same(layout) or (dense and large)
