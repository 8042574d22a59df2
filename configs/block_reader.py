"""Reads the keys of a block that is no part of a config, and notes what is wrong with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..common.options import is_number, is_whole
from .document import Node, Place, Problem
from .suggest import did_you_mean, expected


class BlockReader:
    """Reads mappings, words and numbers of the block with this name; paths begin in it."""

    def __init__(self, block: str) -> None:
        self.problems: list[Problem] = []
        self._block = block

    def mapping(self, node: Node, path: str, keys: Sequence[str]) -> dict[str, Node]:
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

    def word(self, node: Node | None, path: str, known: Sequence[str]) -> str | None:
        """One of the known words; None if it is missing or wrong."""
        if node is None:
            return None
        if node.value in known:
            return str(node.value)
        self.at(node.place, path, expected(known, node.text, node.described()))
        return None

    def number(self, node: Node | None, path: str, least: int, whole: bool = False) -> float | None:
        """A number above ``least``, or a whole one of at least that; None if missing or wrong."""
        if node is None:
            return None
        value: Any = node.value
        right = is_whole(value) if whole else is_number(value)
        if right and (value >= least if whole else value > least) and value < 2**63:
            return value  # type: ignore[no-any-return]
        kind = f"a whole number of at least {least}" if whole else f"a number above {least}"
        if right and value > least:
            kind += " and below 2^63"
        self.at(node.place, path, f"expected {kind} (got {node.described()})")
        return None

    def flag(self, node: Node | None, path: str) -> bool | None:
        """True or false; None if it is missing or wrong."""
        if node is None:
            return None
        if isinstance(node.value, bool):
            return node.value
        self.at(node.place, path, f"expected true or false (got {node.described()})")
        return None

    def at(self, place: Place, path: str, message: str) -> None:
        """Note a problem."""
        self.problems.append(
            Problem(place, f"{self._block}.{path}" if path else self._block, message)
        )
