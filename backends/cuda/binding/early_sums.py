"""What of a step may run beside the rest, and sums over ranks as early as they can be.

A section of a part in which ranks add up pieces has one Accumulate for all gradients, and behind it
an AllReduce for each piece. Here every piece gets its own Accumulate, unless the kernel of its sum
does that, and both move up to the last operation that computes one of its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....graph.graph import Op
from ....graph.ops import Accumulate, AllReduce, Fused, Metrics
from .small_sums import SmallSums, share_of


def early_sums(ops: Sequence[Op], small: SmallSums) -> tuple[list[Op], set[int]]:
    """The operations in the order in which they are bound, and the ids of those that run beside."""
    beside = set[int]()
    pieces = [op for op in ops if isinstance(op, AllReduce) and op.ranks > 1]
    whole = next((op for op in ops if isinstance(op, Accumulate) and op.parts == 1), None)
    if whole is None or not pieces:
        return list(ops), beside
    written = {tensor: at for at, op in enumerate(ops) for tensor in op.tensors(op.outputs)}
    behind: dict[int, list[Op]] = {}
    left = dict.fromkeys(whole.sums)
    for piece in pieces:
        own = share_of(whole, piece.values)
        last = max(written[tensor] for tensor in own.gradients)
        alone = [piece] if small.takes(whole, piece.values) else [own, piece]
        behind.setdefault(last, []).extend(alone)
        beside.update(map(id, alone))
        for tensor in piece.values:
            del left[tensor]
    found: list[Op] = []
    for at, op in enumerate(ops):
        if op is not whole:
            found += [op] if id(op) not in beside else []
        elif left and not small.takes(whole, left):
            found.append(share_of(whole, left))
        found += behind.get(at, ())
    return found, beside


def changes(op: Op) -> bool:
    """Whether an operation updates what the step began with, not only its own metrics."""
    return bool(op.tensors(op.updates)) and not isinstance(op, Metrics) and not _is_beside(op)


def only_gradients(op: Op) -> bool:
    """Whether nothing but gradients, or metrics that nothing waits for, comes of an operation."""
    alone = not op.tensors(op.updates) and all(t.role == "gradient" for t in op.writes())
    return alone or _is_beside(op)


def _is_beside(op: Op) -> bool:
    """A fused operation whose metrics nothing in the section waits for."""
    return isinstance(op, Fused) and op.beside
