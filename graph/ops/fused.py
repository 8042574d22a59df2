"""Several operations that a backend runs as one: their meaning is that of their parts in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..graph import ITEM_SIZE, Op, Tensor


@dataclass(frozen=True, kw_only=True)
class Fused(Op):
    """``given``, then ``parts``, run in order; what only they use never leaves the kernel.

    ``kind`` names the kernel, ``sources`` are read from outside, ``results`` are seen outside,
    ``states`` are updated in place. The kernel knows the results of ``given`` from before or
    computes them again: they do not count as work of this operation. ``bf16``: the tensors
    outside that may be kept in bfloat16. ``beside``: nothing else in a section waits for what it
    updates, so it may run beside the others.
    """

    inputs: ClassVar = ("sources",)
    outputs: ClassVar = ("results",)
    updates: ClassVar = ("states",)
    kind: str
    parts: tuple[Op, ...]
    sources: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    states: tuple[Tensor, ...] = ()
    given: tuple[Op, ...] = ()
    bf16: tuple[Tensor, ...] = ()
    beside: bool = False

    def check(self) -> None:
        for part in (*self.given, *self.parts):
            part.check()

    def flops(self) -> int:
        return sum(part.flops() for part in self.parts)

    def bytes(self) -> int:
        seen = (*self.sources, *self.results, *self.states, *self.states)
        return sum(t.size * ITEM_SIZE[t.dtype] for t in seen)

    @property
    def name(self) -> str:
        return self.kind
