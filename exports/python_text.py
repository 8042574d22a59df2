"""Texts in Python files."""

from __future__ import annotations

from collections.abc import Mapping

from ..common.printable import printable

# What files say in code.
_IN_CODE = ("classes", "input", "preprocessing")


def quoted(text: str) -> str:
    """A string, in the quotes that need no escapes."""
    plain = repr(text)
    return plain if '"' in plain else f'"{plain[1:-1]}"'


def about(entries: Mapping[str, str]) -> dict[str, str]:
    """What a file says of itself, each in one line."""
    kept = {key: value for key, value in entries.items() if key not in _IN_CODE}
    return {key: printable(" ".join(value.split())) for key, value in kept.items()}
