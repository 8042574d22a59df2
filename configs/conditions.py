"""The conditions of a search: with which values of other keys a key is searched (``when``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from .dimension import Dimension
from .document import Node, Place
from .suggest import nearest

# The keys above another one; None for one with a mistake.
Known: TypeAlias = "Mapping[str, Dimension | None]"
Note: TypeAlias = Callable[[Place, str, str], None]


def read_conditions(
    node: Node | None, path: str, known: Known, names: Sequence[str], note: Note
) -> Mapping[str, tuple[Any, ...]]:
    """The conditions at ``path``; problems are given to ``note``.

    known: the keys above, names: all keys of the search.
    """
    if node is None:
        return {}
    if not isinstance(node.value, dict) or not node.value:
        note(node.place, path, "expected keys with the values that they must have")
        return {}
    found = {}
    for key, value in node.value.items():
        if key not in known:
            note(value.key_place or value.place, f"{path}.{key}", _unknown(key, known, names))
        plain = value.plain()
        found[key] = tuple(plain) if isinstance(plain, list) else (plain,)
        if (other := known.get(key)) is not None:
            for each in found[key]:
                if reason := other.never(each):
                    note(value.place, f"{path}.{key}", f"is never {each!r}: {reason}")
    return found


def _unknown(key: str, known: Known, names: Sequence[str]) -> str:
    """What is wrong with a condition on a key that is not above."""
    if key in names:
        return "is searched further below; a key can depend only on keys above it: move it up"
    ends = [name for name in known if name.endswith(f".{key}")]
    near = ends[0] if len(ends) == 1 else nearest(key, known)
    if near:
        return f"is not a key of this search; did you mean '{near}'?"
    listed = f"the keys above are {', '.join(known)}" if known else "there is no key above this one"
    return f"is not a key of this search; {listed}"
