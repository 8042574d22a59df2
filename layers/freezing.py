"""Which layers of a network stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ..common.errors import ConfigError
from ..common.text import listed
from .composite import walk
from .layer import Layer

_NAMED = 12


def freeze_layers(layers: Sequence[Layer], patterns: Sequence[str]) -> None:
    """Freeze every layer whose name a pattern matches, with the layers inside it.

    ``*`` stands for any text, ``?`` for a character. Raises ConfigError for a pattern that matches
    no layer, or only layers of which training changes nothing anyway.
    """
    for index, pattern in enumerate(patterns):
        found = [layer for layer in walk(layers) if fnmatchcase(layer.name, pattern)]
        if not any(layer.parameters() or layer.running_statistics() for layer in found):
            raise ConfigError(_unmatched(index, pattern, layers, bool(found)))
        for layer in found:
            layer.freeze()


def _unmatched(index: int, pattern: str, layers: Sequence[Layer], exists: bool) -> str:
    names = [layer.name for layer in walk(layers) if layer.parameters()]
    if exists:
        return f"freeze.{index}: '{pattern}' matches only layers without parameters"
    close = get_close_matches(pattern, names, n=1)
    known = f"layers with parameters are {listed(names, _NAMED)}"
    hint = f"did you mean '{close[0]}'? The {known}" if close else f"the {known}"
    return f"freeze.{index}: no layer matches '{pattern}'; {hint}"
