"""Operations whose numbers may change after they are bound: a rate's factor, a momentum, a key.

A kernel says which fields it reads anew; another training that differs in these alone then runs
what was compiled for the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Generic, TypeVar

from ..graph.graph import Graph, Op
from ..graph.ops import Fused
from .tuning import Tuning, fingerprint, same_but_for_numbers, training_sections

OpT = TypeVar("OpT", bound=Op)
Pair = tuple[Op, Op]
_PARTLESS: dict[str, Any] = {"given": (), "parts": ()}


class Live(Generic[OpT]):
    """``op`` is the operation as the present training has it; ``names``: what of it may change."""

    def __init__(self, op: OpT, names: Iterable[str]) -> None:
        self.op = op
        self.names = set(names)
        self._followers: list[Callable[[OpT], None]] = []

    def on_change(self, apply: Callable[[OpT], None]) -> None:
        """Call ``apply`` with the operation whenever it is another one."""
        self._followers.append(apply)

    def forget(self) -> None:
        """Let go of all that is called."""
        self._followers.clear()

    def renumber(self, op: OpT) -> None:
        self.op = op
        for apply in self._followers:
            apply(op)


class LiveOps:
    """What a section has bound of operations that may change; by the operation itself."""

    def __init__(self) -> None:
        self._held: dict[int, Live[Any]] = {}

    def add(self, op: OpT, names: Sequence[str]) -> Live[OpT]:
        """An operation of which these fields may change. A kernel that reads others of it, or that
        decides by more than which of them are 0, 1 or equal, must not name them."""
        if id(op) in self._held:
            # Two kernels bind it: only what both read anew may change.
            self._held[id(op)].names &= set(names)
            return self._held[id(op)]
        self._held[id(op)] = Live(op, names)
        return self._held[id(op)]

    def close(self) -> None:
        """Let go of what is bound, which refers to these operations in circles."""
        for live in self._held.values():
            live.forget()

    def may_become(self, pairs: Sequence[Pair]) -> bool:
        """Whether each of these operations may become the other one."""
        return all(
            id(op) in self._held and self._held[id(op)].names.issuperset(differing(op, other))
            for op, other in pairs
        )

    def become(self, pairs: Sequence[Pair]) -> None:
        """Let each of these operations become the other one."""
        for op, other in pairs:
            live = self._held.pop(id(op))
            live.renumber(other)
            self._held[id(other)] = live


def changed(graph: Graph, other: Graph) -> list[Pair] | None:
    """The operations that differ between two forms of a section, parts of fused ones by themselves.

    None if they differ in more than numbers that no choice depends on.
    """
    if len(graph.ops) != len(other.ops) or graph.results != other.results:
        return None
    found: dict[int, Pair] = {}
    for pair in zip(graph.ops, other.ops, strict=True):
        for part, instead in _changed(*pair):
            # Several fused ones may have a part in common.
            if found.setdefault(id(part), (part, instead))[1] != instead:
                return None
    return [*found.values()] if all(_alike(*pair) for pair in found.values()) else None


def differing(op: Op, other: Op) -> list[str]:
    """The fields in which two operations of one type differ."""
    return [f.name for f in fields(op) if getattr(op, f.name) != getattr(other, f.name)]


def renumber(
    graphs: Mapping[str, Graph], others: Mapping[str, Graph], live: Mapping[str, LiveOps]
) -> bool:
    """Let sections become others, if they may; ``live``: what is bound of each."""
    pairs = {name: changed(graph, others[name]) for name, graph in graphs.items()}
    known = {name: found for name, found in pairs.items() if found is not None}
    if len(known) < len(pairs) or not all(live[n].may_become(p) for n, p in known.items()):
        return False
    for name, found in known.items():
        live[name].become(found)
    return True


def renumbered(tuning: Tuning, graphs: Mapping[str, Graph], *extra: object) -> Tuning:
    """The tuning as compiling these sections would have it; ``extra`` as in ``fingerprint``."""
    trained = training_sections(graphs)
    return replace(tuning, graph=fingerprint(trained, *extra) if trained else "")


def _changed(op: Op, other: Op) -> Iterator[Pair]:
    if op is other or op == other:
        return
    own, others = _parts(op), _parts(other)
    if own and len(own) == len(others) and replace(op, **_PARTLESS) == replace(other, **_PARTLESS):
        for pair in zip(own, others, strict=True):
            yield from _changed(*pair)
        return
    yield op, other


def _parts(op: Op) -> tuple[Op, ...]:
    return (*op.given, *op.parts) if isinstance(op, Fused) else ()


def _alike(op: Op, other: Op) -> bool:
    return type(op) is type(other) and all(
        same_but_for_numbers(name, getattr(op, name), getattr(other, name))
        for name in differing(op, other)
    )
