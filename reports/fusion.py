"""What rewriting did to a graph: the plain operations that each new one replaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph.graph import Graph, Op, Tensor
from ..graph.ops import Fused


def replacements(plain: Graph, rewritten: Graph) -> dict[Op, tuple[Op, ...]]:
    """For each operation that rewriting made: the plain operations that it replaces.

    A single one was only moved: the same operation on another tensor or at another place. Of
    operations that run as one kernel, each part is examined separately.
    """
    units = [
        (unit, op)
        for op in rewritten.ops
        for unit in (op.parts if isinstance(op, Fused) else (op,))
    ]
    there = {_bare(op): op for op in plain.ops}
    kept = {_bare(unit) for unit, _ in units}
    left = [op for op in plain.ops if _bare(op) not in kept]
    found: dict[Op, set[Op]] = {}
    moved: list[tuple[Op, Op]] = []
    for unit, op in units:
        if _bare(unit) in there:
            if unit is not op:
                found.setdefault(op, set()).add(there[_bare(unit)])
            continue
        sources = _sources(unit, plain, left)
        if sources:
            found.setdefault(op, set()).update(sources)
            left = [other for other in left if other not in sources]
        else:
            moved.append((unit, op))
    for unit, op in moved:
        twins = (o for o in left if type(o) is type(unit) and o.origin[0] in unit.origin)
        twin = next(twins, None)
        if twin is not None:
            found.setdefault(op, set()).add(twin)
            left.remove(twin)
    return {op: tuple(o for o in plain.ops if o in sources) for op, sources in found.items()}


def _sources(op: Op, plain: Graph, left: Sequence[Op]) -> tuple[Op, ...]:
    """The plain operations, of the origins of ``op``, from what it reads to what it writes."""
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


def same_op(op: Op, ops: Sequence[Op]) -> Op | None:
    """The one among ``ops`` that computes the same, whatever its origin."""
    wanted = _bare(op)
    return next((other for other in ops if _bare(other) == wanted), None)


def _bare(op: Op) -> tuple[Any, ...]:
    """What an operation computes, without its origin."""
    values = {name: value for name, value in vars(op).items() if name != "origin"}
    return (type(op), *values.values())
