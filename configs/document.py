"""Configs as documents: plain values with the places where they were written; also of objects."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..common.text import cut

# Characters of an override, of a path and of the rest of a message; longer ones are cut.
_LONGEST, _LONGEST_TEXT = 200, 1000


@dataclass(frozen=True, order=True)
class Place:
    """The origin of a value: a file's line and column, an override or an object (no line)."""

    rank: int
    line: int
    column: int
    source: str

    @classmethod
    def in_file(cls, source: str, line: int, column: int) -> Place:
        return cls(0, line, column, source)

    @classmethod
    def in_override(cls, assignment: str, rank: int = 1) -> Place:
        return cls(rank, 0, 0, f"--set {cut(assignment, _LONGEST)}")

    @classmethod
    def of_object(cls, source: str) -> Place:
        return cls(0, 0, 0, source)

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, order=True)
class Problem:
    """A mistake in a config; ``path`` is the dotted path of the key.

    ``note`` says how the value is used; the same mistake with two notes counts once.
    """

    place: Place
    path: str
    message: str
    note: str = field(default="", compare=False)

    def __str__(self) -> str:
        parts = (str(self.place), cut(self.path, _LONGEST), cut(self.message, _LONGEST_TEXT))
        text = ": ".join(part for part in parts if part)
        return f"{text} ({self.note})" if self.note else text


@dataclass
class Node:
    """A scalar, list or mapping of a document.

    ``text`` is a scalar as it was written, ``key_place`` the place of its key in a mapping.
    ``broken`` marks a value that could not be read, so that no further problem is reported. An
    expanded layer keeps the ``path`` where it was written, a ``note`` on how it is used, and its
    name as ``label``.
    """

    value: bool | int | float | str | list[Node] | dict[str, Node] | None
    place: Place
    text: str = ""
    key_place: Place | None = None
    broken: bool = False
    path: tuple[str, ...] = ()
    note: str = ""
    label: str = ""

    @property
    def items(self) -> list[Node]:
        """The items of a list; none of another value."""
        return self.value if isinstance(self.value, list) else []

    def child(self, key: str | int) -> Node | None:
        """The value at a key or index, or None."""
        if isinstance(self.value, dict) and isinstance(key, str):
            return self.value.get(key)
        return self.items[key] if isinstance(key, int) and key < len(self.items) else None

    def only_key(self) -> str | None:
        """The key of a mapping that has exactly one."""
        if isinstance(self.value, dict) and len(self.value) == 1:
            return next(iter(self.value))
        return None

    def place_with(self, *keys: str) -> Place:
        """The place of a problem between these keys: the override that gave one of them last."""
        found = (self.child(key) for key in keys)
        places = [self.place, *(n.place for n in found if n and n.place.rank)]
        return max(places, key=lambda place: place.rank)

    def copy(self) -> Node:
        """The same tree, of which nothing is shared that can change."""
        value = self.value
        if isinstance(value, dict):
            value = {key: node.copy() for key, node in value.items()}
        elif isinstance(value, list):
            value = [node.copy() for node in value]
        own = (self.place, self.text, self.key_place, self.broken, self.path, self.note, self.label)
        return Node(value, *own)

    def plain(self) -> Any:
        """The document as lists, dicts and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def described(self) -> str:
        """The value in an error message: ``'yes'``, ``1e-3``, ``a list``."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            items = ", ".join(item.described() for item in self.value)
            return f"[{items}]" if len(items) <= 60 else "a list"
        if self.value is None:
            return "nothing"
        text = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        return repr(text) if isinstance(self.value, str) else text


LABEL = "config"
_DEEPEST = 50


def as_document(table: Mapping[Any, Any], problems: list[Problem]) -> Node:
    """The document of a mapping; what no YAML file could hold is appended to ``problems``."""
    return _node(table, (), problems)


def _node(value: Any, path: tuple[str, ...], problems: list[Problem]) -> Node:
    place = Place.of_object(LABEL)
    # A NumPy number is the number that it holds.
    value = value.item() if getattr(value, "shape", None) == () else value
    value = os.fspath(value) if isinstance(value, Path) else value
    if len(path) > _DEEPEST:
        problems.append(Problem(place, ".".join(path[:3]), "nested too deeply for a config"))
        return Node(None, place, broken=True)
    if isinstance(value, Mapping):
        inner = {str(key): _node(v, (*path, str(key)), problems) for key, v in value.items()}
        for node in inner.values():
            node.key_place = place
        return Node(inner, place)
    if isinstance(value, (list, tuple)):
        items = (_node(v, (*path, str(i)), problems) for i, v in enumerate(value))
        return Node(list(items), place)
    if value is None or isinstance(value, bool):
        return Node(value, place, {None: "null", True: "true", False: "false"}[value])
    if isinstance(value, (int, float, str)):
        return Node(value, place, str(value))
    what = f"expected a number, text, a list or a mapping (got {type(value).__name__})"
    problems.append(Problem(place, ".".join(path), what))
    return Node(None, place, broken=True)
