"""Reads the keys of a block that is no part of a config, and notes what is wrong with them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from ..common.options import is_number, is_whole
from .document import Node, Place, Problem
from .suggest import did_you_mean, expected

Json = Mapping[str, Any]


class BlockReader:
    """Reads the block with this name by the JSON Schemas of its keys; paths begin in it."""

    def __init__(self, block: str) -> None:
        self.problems: list[Problem] = []
        self._block = block

    def mapping(self, node: Node, path: str, keys: Collection[str]) -> dict[str, Node]:
        """The keys of a mapping, those that are unknown too; of another value none."""
        if not isinstance(node.value, dict):
            text = f"expected a mapping with the keys {', '.join(keys)} (got {node.described()})"
            self.at(node.place, path, text)
            return {}
        for key, value in node.value.items():
            if key not in keys:
                text = did_you_mean(key, keys, f"expected one of {', '.join(keys)}")
                place = value.key_place or value.place
                self.at(place, f"{path}.{key}" if path else key, f"unknown key; {text}")
        return node.value

    def values(self, given: Mapping[str, Node], path: str, schemas: Json) -> dict[str, Any]:
        """The values of those keys that ``schemas`` has, without the wrong ones."""
        start = f"{path}." if path else ""
        found = {
            key: self.value(node, start + key, schemas[key])
            for key, node in given.items()
            if key in schemas
        }
        return {key: value for key, value in found.items() if value is not None}

    def value(self, node: Node, path: str, schema: Json) -> Any:
        """A word, true or false, or a number, as its schema says; None if it is wrong."""
        value: Any = node.value
        got = f"(got {node.described()})"
        if "enum" in schema:
            wrong = expected(schema["enum"], node.text, node.described())
            right = value in schema["enum"]
        elif schema["type"] == "boolean":
            wrong, right = f"expected true or false {got}", isinstance(value, bool)
        else:
            kind, right = _number(value, schema)
            wrong = f"expected a {kind} {got}"
        if not right:
            self.at(node.place, path, wrong)
        return value if right else None

    def at(self, place: Place, path: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(
            Problem(place, f"{self._block}.{path}" if path else self._block, message)
        )


def _number(value: Any, schema: Json) -> tuple[str, bool]:
    """The kind of number that is expected, and whether the value is one."""
    whole, above = schema["type"] == "integer", schema.get("exclusiveMinimum")
    kind = "whole number" if whole else "number"
    right = is_whole(value) if whole else is_number(value)
    least = schema.get("minimum", above)
    if least is None:
        return ("finite number", math.isfinite(value)) if right else (kind, False)
    kind += f" of at least {least}" if above is None else f" above {least}"
    right = right and (value >= least if above is None else value > least)
    return (f"{kind} and below 2^63", value < 2**63) if right else (kind, False)
