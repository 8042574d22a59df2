"""What rewriting did to a graph: which plain operations each new one stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..layers.graph import Graph, Op, Tensor


def replacements(plain: Graph, rewritten: Graph) -> dict[Op, tuple[Op, ...]]:
    """For each operation that rewriting made: the plain operations whose work it does.

    One alone was moved: the same operation on another tensor or at another place.
    """
    kept = {_bare(op) for op in rewritten.ops}
    left = [op for op in plain.ops if _bare(op) not in kept]
    there = {_bare(op) for op in plain.ops}
    found: dict[Op, tuple[Op, ...]] = {}
    moved: list[Op] = []
    for op in rewritten.ops:
        if _bare(op) in there:
            continue
        sources = _sources(op, plain, left)
        if sources:
            found[op] = sources
            left = [other for other in left if other not in sources]
        else:
            moved.append(op)
    for op in moved:
        twin = next((o for o in left if type(o) is type(op) and o.origin[0] in op.origin), None)
        if twin is not None:
            found[op] = (twin,)
            left.remove(twin)
    return found


def _sources(op: Op, plain: Graph, left: Sequence[Op]) -> tuple[Op, ...]:
    """The plain operations between what ``op`` writes and what it reads, for its own origins."""
    stop = set(op.reads())
    sources: list[Op] = []
    pending: list[Tensor] = list(op.writes())
    while pending:
        producer = plain.producer(pending.pop())
        if producer is None or producer in sources or producer not in left:
            continue
        if producer.origin[0] in op.origin:
            sources.append(producer)
            pending += [t for t in producer.reads() if t not in stop]
    return tuple(other for other in plain.ops if other in sources)


def _bare(op: Op) -> tuple[Any, ...]:
    """What an operation computes, whoever asked for it."""
    values = {name: value for name, value in vars(op).items() if name != "origin"}
    return (type(op), *values.values())
