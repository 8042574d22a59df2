"""Several operations that a backend runs as one: their meaning is that of their parts in order."""

from __future__ import annotations

from ..graph import In, InOut, Op, Out, Tensor


class Fused(Op):
    """``given``, then ``parts``, run in order; what only they use never leaves the kernel.

    ``kind`` names the kernel, ``sources`` are read from outside, ``results`` are seen outside,
    ``states`` are updated in place. The kernel knows the results of ``given`` from before or
    computes them again: they do not count as work of this operation. ``bf16``: the tensors
    outside that may be kept in bfloat16. ``beside``: nothing else in a section waits for what it
    updates, so it may run beside the others.
    """

    kind: str
    parts: tuple[Op, ...]
    sources: tuple[In, ...]
    results: tuple[Out, ...]
    states: tuple[InOut, ...] = ()
    given: tuple[Op, ...] = ()
    bf16: tuple[Tensor, ...] = ()
    beside: bool = False

    def check(self) -> None:
        for part in (*self.given, *self.parts):
            part.check()

    def flops(self) -> int:
        return sum(part.flops() for part in self.parts)

    @property
    def name(self) -> str:
        return self.kind
