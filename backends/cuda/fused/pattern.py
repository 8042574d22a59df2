"""What patterns share: the operation that replaces several, and the function that launches it.

A part that the kernel computes again, or whose result an earlier kernel keeps for it, is ``given``:
it belongs to the meaning, not to the count of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ....graph.graph import Op, Tensor
from ....graph.ops import BatchNorm, Conv2d, Fused, Pool2d
from ....graph.rewrites import origins
from ..binding.bind import Binder, binds
from ..libraries.kernels import Defines

OpT = TypeVar("OpT", bound=Op)
Launch = Callable[[Binder, Fused], None]
# The functions that bind fused operations, by the kind of these.
LAUNCHES: dict[str, Launch] = {}


@binds(Fused)
def fused(b: Binder, op: Fused) -> None:
    """The kernel of the operation's kind."""
    LAUNCHES[op.kind](b, op)


def part(op: Fused, kind: type[Any]) -> Any:
    """The one part of a type, given parts too; None without one."""
    found = [p for p in (*op.given, *op.parts) if isinstance(p, kind)]
    return found[0] if found else None


def defines(values: dict[str, int]) -> Defines:
    """Numbers that a kernel is compiled with, in an order that does not depend on their maker."""
    return tuple(sorted(values.items()))


def united(
    kind: str,
    parts: tuple[Op, ...],
    given: tuple[Op, ...] = (),
    kept: tuple[Tensor, ...] = (),
    **fields: Any,
) -> Fused:
    """The operation of these parts: what it reads and leaves follows from them.

    ``kept``: results of given parts that are read rather than computed again. ``fields``: others of
    the operation.
    """
    every = (*given, *parts)
    written = {t for op in every for t in op.tensors(op.outputs)} - {*kept}
    states = tuple(dict.fromkeys(t for op in parts for t in op.tensors(op.updates)))
    read = dict.fromkeys(t for op in every for t in op.tensors(op.inputs))
    left = dict.fromkeys(t for op in parts for t in op.tensors(op.outputs))
    found: dict[str, Any] = {
        "sources": tuple(t for t in read if t not in written),
        "results": tuple(t for t in left if t not in read or t.role == "gradient"),
        "origin": origins(parts),
    }
    return Fused(kind=kind, parts=parts, given=given, states=states, **(found | fields))


def halves(pool: Pool2d) -> bool:
    """Whether it takes the maxima of windows of 2 by 2, side by side."""
    height, width = pool.x.shape[2:]
    return (
        pool.kind == "max"
        and pool.window.kernel == pool.window.stride == (2, 2)
        and not any(pool.window.padding)
        and pool.y.shape[2:] == (height // 2, width // 2)
    )


def single(readers: Sequence[Op], kind: type[OpT]) -> OpT | None:
    """The single one of them, if it is of this kind."""
    return readers[0] if len(readers) == 1 and isinstance(readers[0], kind) else None


def normed(b: Binder, op: Conv2d) -> bool:
    """Whether a batch norm takes the moments of what a convolution computes."""
    readers = (part(r, BatchNorm) if isinstance(r, Fused) else r for r in b.graph.consumers(op.y))
    return any(isinstance(each, BatchNorm) and each.x == op.y for each in readers)
