"""``--set search.trials=5``: changes the block of a search, which is no part of a config.

A key to search keeps its own points: ``search.keys.optimizer.lr={low: 0.1, high: 1}``, and
``search.keys.optimizer.lr.high=1`` for one end of a range that the file has.
"""

from __future__ import annotations

from .document import Node, Place, Problem
from .overrides import Compose

_KEYS = "keys"


def is_of(block: str, assignment: str) -> bool:
    """Whether this changes the block."""
    return assignment.partition("=")[0].partition(".")[0].strip() == block


def apply_to_block(
    node: Node, assignment: str, place: Place, problems: list[Problem], compose: Compose
) -> None:
    """Apply one ``search.key=value`` to the block; append mistakes of its form to ``problems``.

    Whether the block has such a key, and may have such a value, is seen when it is read.
    """
    path, equals, text = assignment.partition("=")
    _, *parts = (part.strip() for part in path.split("."))
    if not equals or not parts or not all(parts):
        problems.append(Problem(place, "", "expected search.key=value, as in search.trials=20"))
        return
    value = compose(text, path.strip(), place, problems)
    if value is None:
        return
    value.key_place = place
    first, *rest = parts
    if rest:
        if first == "sampler":
            _expand_word(node.child(first))
        node = _inside(node, first, place)
        if first == _KEYS:
            *own, last = rest
            if (key := ".".join(own)) in _mapping(node):
                node, rest = _inside(node, key, place), [last]
        first = ".".join(rest)
    _mapping(node)[first] = value


def _expand_word(word: Node | None) -> None:
    """A sampler that is a word alone gets room for options."""
    if word is not None and isinstance(word.value, str):
        kind = Node(word.value, word.place, word.text, key_place=word.key_place)
        word.value = {"type": kind}


def _inside(node: Node, key: str, place: Place) -> Node:
    """The node at a key."""
    return _mapping(node).setdefault(key, Node({}, place, key_place=place))


def _mapping(node: Node) -> dict[str, Node]:
    """The keys of a node, made a mapping if it is none."""
    if not isinstance(node.value, dict):
        node.value = {}
    return node.value
