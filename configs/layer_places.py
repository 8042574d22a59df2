"""Layers in messages: ``layer 2 'conv2d_1' (conv2d)``, as errors of shapes call them."""

from __future__ import annotations

from collections.abc import Sequence

_LAYERS = "layers"
_INNER = ("body", "shortcut", "branches", _LAYERS)
"""The options of layers that hold layers; ``layers`` is that of ``repeat``."""


def shown_path(path: Sequence[str], name: str = "") -> str:
    """The path of a key in a document, in which layers are counted from 1.

    ``layers.2.dense.units`` is shown as ``layer 3 'dense_1' (dense): units``; ``name`` is that of
    the innermost layer, if it is known. Paths without layers stay as they are.
    """
    start = path.index(_LAYERS) if _LAYERS in path else len(path)
    above, rest = path[:start], list(path[start + 1 :])
    if not rest or not rest[0].isdigit():
        return ".".join(path)
    where, kind = "layer ", ""
    while rest and rest[0].isdigit():
        where += str(int(rest.pop(0)) + 1)
        kind = ""
        if rest and rest[0].isdigit():
            # The lists of a concat.
            where += "."
            continue
        kind = rest.pop(0) if rest else ""
        if len(rest) > 1 and rest[0] in _INNER and rest[1].isdigit():
            where += f".{rest.pop(0)}."
    if kind:
        where += f" '{name}' ({kind})" if name else f" ({kind})"
    return ": ".join(part for part in (".".join(above), where, ".".join(rest)) if part)
