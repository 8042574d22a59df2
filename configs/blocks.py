"""The definitions of ``blocks``: named layers with parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..common.records import dataclass
from .document import Node, Place, Problem
from .layer_places import shown_path
from .schema.layers import LAYER_KINDS
from .suggest import did_you_mean

REPEAT = "repeat"
PARAMETER = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYS = ("parameters", "layers")


@dataclass(frozen=True)
class Block:
    """Named layers; a parameter whose default is None must be given."""

    name: str
    parameters: Mapping[str, Node | None]
    layers: Node


def read_blocks(node: Node, problems: list[Problem]) -> dict[str, Block | None]:
    """The blocks by name; None for an invalid one, whose mistakes are in ``problems``."""
    if isinstance(node.value, dict):
        return {name: _Reader(name, problems).block(each) for name, each in node.value.items()}
    if not node.broken:
        message = f"expected a mapping of names to blocks (got {node.described()})"
        problems.append(Problem(node.place, "blocks", message))
    return {}


@dataclass
class _Reader:
    name: str
    problems: list[Problem]

    def _note(self, place: Place | None, message: str, *path: str) -> None:
        assert place is not None
        self.problems.append(Problem(place, shown_path(("blocks", self.name, *path)), message))

    def block(self, node: Node) -> Block | None:
        name = self.name
        if not _WORD.fullmatch(name) or name in LAYER_KINDS or name == REPEAT:
            what = "is the name of a layer" if _WORD.fullmatch(name) else "is not one"
            expected = f"expected a word of letters, digits and '_' as a block's name; '{name}'"
            self._note(node.key_place, f"{expected} {what}")
            return None
        if not isinstance(node.value, dict):
            if not node.broken:
                message = f"expected a mapping with parameters and layers (got {node.described()})"
                self._note(node.place, message)
            return None
        for key, inner in node.value.items():
            if key not in _KEYS:
                hint = did_you_mean(key, _KEYS, "expected parameters or layers")
                self._note(inner.key_place, f"unknown key; {hint}", key)
        parameters, layers = self._parameters(node), self._layers(node)
        if parameters is None or layers is None:
            return None
        used = set(_parameters_in(layers))
        for parameter in parameters:
            if parameter not in used:
                place = node.value["parameters"].child(parameter) or node
                message = f"the parameter is not used; write ${parameter} in the layers, or remove"
                self._note(place.key_place, f"{message} it", "parameters", parameter)
        return Block(name, parameters, layers)

    def _layers(self, block: Node) -> Node | None:
        layers = block.child("layers")
        if layers is None:
            message = "required key is missing (The layers of the block.)"
            self._note(block.key_place, message, "layers")
            return None
        if isinstance(layers.value, list) and layers.value:
            return layers
        if not layers.broken:
            message = f"expected a list of at least one layer (got {layers.described()})"
            self._note(layers.place, message, "layers")
        return None

    def _parameters(self, block: Node) -> dict[str, Node | None] | None:
        node = block.child("parameters")
        if node is None or node.value is None:
            return {}
        if not isinstance(node.value, dict):
            message = f"expected a mapping of names to defaults (got {node.described()})"
            self._note(node.place, message, "parameters")
            return None
        for name, default in node.value.items():
            if not _WORD.fullmatch(name):
                message = "expected a word of letters, digits and '_'"
                self._note(default.key_place, message, "parameters", name)
        return {
            name: default if default.value is not None else None
            for name, default in node.value.items()
        }


def _parameters_in(node: Node) -> list[str]:
    """The names of the parameters that a block's layers use."""
    inside = list(node.value.values()) if isinstance(node.value, dict) else node.items
    if inside:
        return [name for inner in inside for name in _parameters_in(inner)]
    name = PARAMETER.fullmatch(node.value) if isinstance(node.value, str) else None
    return [name[1]] if name else []
