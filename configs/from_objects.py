"""A config given as Python objects, read by the same rules as a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .document import Node, Place, Problem

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
