"""Words of messages and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from .printable import printable


def shape_text(shape: Sequence[int]) -> str:
    """``20x24x24``."""
    return "x".join(map(str, shape))


def cut(text: str, width: int) -> str:
    """The text, made printable; its end is an ellipsis if it is longer than ``width``."""
    text = printable(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"


def listed(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def versions_text(versions: Mapping[str, str]) -> str:
    """``oneDNN 3.2.0, threads 2``."""
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def suggested(word: str, known: Sequence[str], then: str) -> str:
    """``did you mean 'mnist'? Known``, or only ``known``, which is ``then``."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean '{close[0]}'? {then.capitalize()}" if close else then
