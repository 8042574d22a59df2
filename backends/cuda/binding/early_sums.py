"""Sums over ranks as early as they can be: right behind the gradients, beside the rest of backward.

A section of a part that ranks add up in pieces has one Accumulate for all gradients, and behind it
an AllReduce for each piece. Here every piece gets its own Accumulate, and both move up to the last
operation that computes one of its gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....graph.graph import Op, Tensor
from ....graph.ops import Accumulate, AllReduce
from .decisions import Operations


def early_sums(ops: Sequence[Op]) -> tuple[list[Op], Operations]:
    """The operations in the order in which they are to be bound, and those that run beside."""
    beside = Operations()
    pieces = [op for op in ops if isinstance(op, AllReduce) and op.ranks > 1]
    whole = next((op for op in ops if isinstance(op, Accumulate) and op.parts == 1), None)
    if whole is None or not pieces:
        return list(ops), beside
    gradients = dict(zip(whole.sums, whole.gradients, strict=True))
    written = {tensor: at for at, op in enumerate(ops) for tensor in op.tensors(op.outputs)}
    behind: dict[int, list[Op]] = {}
    left = dict(gradients)
    for piece in pieces:
        own = _of(whole, piece.values, gradients)
        last = max(written[tensor] for tensor in own.gradients)
        behind.setdefault(last, []).extend((own, piece))
        for tensor in piece.values:
            del left[tensor]
        beside.add(own)
        beside.add(piece)
    found: list[Op] = []
    for at, op in enumerate(ops):
        if op is whole and left:
            found.append(_of(whole, tuple(left), gradients))
        elif op is not whole and op not in beside:
            found.append(op)
        found += behind.get(at, ())
    return found, beside


def _of(whole: Accumulate, sums: tuple[Tensor, ...], gradients: dict[Tensor, Tensor]) -> Accumulate:
    """That of some of its gradients."""
    return replace(whole, sums=sums, gradients=tuple(gradients[tensor] for tensor in sums))
