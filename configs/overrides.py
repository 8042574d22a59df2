"""``--set key.path=value``: changes the document before the schema sees it.

A path may leave out what is optional in a document: ``layers.0.filters`` means
``layers.0.conv2d.filters``, and ``schedule.gamma`` works where the file says ``schedule: exp``.
A layer is given by its index from 0, by its name (``dense_2``), or by its type if that is unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..common.text import listed
from .document import Node, Place, Problem
from .schema.base import Model, NamedModel, TypedModel
from .schema.extended import config_model
from .schema.shape import field_models, is_list, item_models, keys, kinds
from .suggest import did_you_mean

Compose = Callable[[str, str, Place, list[Problem]], "Node | None"]

_EXCLUSIVE = (
    {"epochs", "max_steps"},
    {"epochs", "steps"},
    {"every_epochs", "every_steps"},
    {"max_epochs", "max_steps"},
    {"step_size", "step_size_epochs"},
    {"milestones", "milestones_epochs"},
)
"""Mutually exclusive keys: setting one removes the other of the file."""
_MOST = 12
"""Items that a message names."""


class _Refused(Exception):
    """The path does not exist; the message says why."""


def is_of_block(assignment: str) -> bool:
    """Whether this is ``blocks.<name>...=value``, to be applied before blocks are expanded."""
    return assignment.lstrip().startswith("blocks.")


def exclude_each_other(one: str, other: str) -> bool:
    """Whether a mapping has only one of the keys at these two paths."""
    (above, _, first), (beside, _, second) = one.rpartition("."), other.rpartition(".")
    return above == beside and {first, second} in _EXCLUSIVE


def apply_override(
    root: Node,
    assignment: str,
    place: Place,
    problems: list[Problem],
    compose: Compose,
    model: type[Model] | None = None,
) -> None:
    """Apply one ``key.path=value`` to ``root``; append mistakes to ``problems``.

    model: of the document, by default that of a config.
    """
    key, equals, text = assignment.partition("=")
    *above, last = (part.strip() for part in key.split("."))
    of_block = is_of_block(assignment)
    if not of_block and (not equals or not all([*above, last])):
        problems.append(Problem(place, "", "expected key.path=value, as in optimizer.lr=0.05"))
        return
    value = compose(text, key.strip(), place, problems)
    if value is None:
        return
    value.key_place = place
    node, whole = root, ".".join(above)
    models: list[type[Model]] = [model or config_model()]
    try:
        for depth, part in enumerate(above):
            if of_block:
                node = _step(node, part, ".".join(above[:depth]))
            else:
                node, models = _enter(node, models, part, ".".join(above[:depth]), place)
        if isinstance(node.value, list):
            node.value[_index(node.value, last, whole)] = value
        elif not of_block:
            _assign(node, models, last, whole, value, place)
        elif isinstance(node.value, dict):
            node.value[last] = value
        else:
            raise _Refused(f"'{whole}' has no keys")
    except _Refused as error:
        problems.append(Problem(place, key.strip(), str(error)))


def _step(node: Node, part: str, above: str) -> Node:
    if isinstance(node.value, list):
        return node.value[_index(node.value, part, above)]
    inner = node.child(part)
    if inner is None and not above:
        raise _Refused("the config has no blocks")
    if inner is None:
        known = list(node.value) if isinstance(node.value, dict) else []
        otherwise = f"it has {', '.join(known)}" if known else "it has none"
        raise _Refused(
            f"'{part}' is not a key of '{above}'; {did_you_mean(part, known, otherwise)}"
        )
    return inner


def _enter(
    node: Node, models: list[type[Model]], part: str, above: str, place: Place
) -> tuple[Node, list[type[Model]]]:
    """The node at ``part`` of ``node``, created if it is not in the file, and its models."""
    if isinstance(node.value, list):
        return node.value[_index(node.value, part, above)], models
    if _is_named(models) and part in _kinds(models):
        inner = node.child(part) or Node({}, place, key_place=place)
        inner.value = {} if inner.value is None else inner.value
        node.value = {part: inner}
        return inner, [model for model in models if part in kinds(model)]
    mapping, model = _options(node, models, above, place)
    if part not in model.model_fields:
        owner = f" of '{above}'" if above else ""
        raise _Refused(f"'{part}' is not a key{owner}; {_known(part, model, above)}")
    inside = field_models(model, part)
    present = mapping.get(part)
    if not inside and not (present and isinstance(present.value, list)):
        raise _Refused(f"'{part}' has no keys")
    if present is None or present.value is None:
        if is_list(model.model_fields[part].annotation):
            key = f"{above}.{part}" if above else part
            raise _Refused(f"the config has no '{key}'; as a whole it is set by '{key}=[...]'")
        present = mapping[part] = _default(model, part, place)
    return present, inside


def _assign(
    node: Node, models: list[type[Model]], part: str, above: str, value: Node, place: Place
) -> None:
    if _is_named(models) and part in _kinds(models):
        node.value = {part: value}
        return
    mapping, _ = _options(node, models, above, place)
    for pair in _EXCLUSIVE:
        for other in pair - {part} if part in pair else ():
            if other in mapping and mapping[other].place.rank == 0:
                del mapping[other]
    mapping[part] = value


def _options(
    node: Node, models: list[type[Model]], above: str, place: Place
) -> tuple[dict[str, Node], type[Model]]:
    """The mapping with the options of ``node``, and its model; expands short forms."""
    if _is_named(models):
        kind = node.text if isinstance(node.value, str) else node.only_key()
        if kind is None:
            raise _Refused(f"'{above}' has no options in the file")
        inner, models = (
            _enter(node, models, kind, above, place) if kind in _kinds(models) else (node, [])
        )
        node = inner
    elif models and isinstance(node.value, str) and (short := models[0].short_key):
        node.value = {short: Node(node.value, node.place, node.text, key_place=node.place)}
    if len(models) > 1:
        kind_node = node.child("type")
        models = [m for m in models if kind_node is not None and kind_node.text in kinds(m)]
    if not models:
        raise _Refused(f"'{above}' has no keys")
    if node.value is None:
        node.value = {}
    if not isinstance(node.value, dict):
        raise _Refused(f"'{above}' is {node.described()} and has no keys")
    return node.value, models[0]


def _default(model: type[Model], key: str, place: Place) -> Node:
    """The node for a key that is not in the file: its default's kind, or an empty mapping."""
    default = model.model_fields[key].default
    if isinstance(default, (NamedModel, TypedModel)):
        kind = str(getattr(default, "type", ""))
        return Node(kind, place, kind, key_place=place)
    return Node({}, place, key_place=place)


def _index(items: list[Node], part: str, above: str) -> int:
    index = int(part) if part.isascii() and part.isdigit() else None
    if index is not None and index < len(items):
        return index
    types = [item.only_key() or item.text for item in items]
    if items and not any(types):
        count = "one item" if len(items) == 1 else f"{len(items)} items"
        raise _Refused(f"'{above}' has {count} without names; the first one is '{above}.0'")
    seen: Counter[str] = Counter()
    names = []
    for item, kind in zip(items, types, strict=True):
        seen[kind] += 1
        options = item.child(kind)
        own = options.child("name") if options else None
        names.append(item.label or (own.text if own else f"{kind}_{seen[kind]}"))
    if index is not None:
        raise _Refused(
            f"'{above}' has {len(items)} items, whose index counts from 0; by name they are "
            f"{listed(names, _MOST)}"
            if items
            else f"'{above}' has no items"
        )
    if part in names:
        return names.index(part)
    if types.count(part) == 1:
        return types.index(part)
    if part in types:
        same = [name for name, kind in zip(names, types, strict=True) if kind == part]
        raise _Refused(f"'{above}' has several of type '{part}': {', '.join(same)}")
    hint = did_you_mean(part, names, f"it has {', '.join(names)}")
    raise _Refused(f"'{above}' has no item '{part}'; {hint}")


def _is_named(models: list[type[Model]]) -> bool:
    return len(models) > 1 and issubclass(models[0], NamedModel)


def _kinds(models: list[type[Model]]) -> list[str]:
    return [kind for model in models for kind in kinds(model)]


def _known(part: str, model: type[Model], above: str) -> str:
    # Of the items of a list, such as the stages of a compression.
    for name in model.model_fields:
        if any(part in inner.model_fields for inner in item_models(model, name)):
            path = f"{above}.{name}" if above else name
            return f"each of '{path}' has its own, the first one '{path}.0.{part}'"
    return did_you_mean(part, keys(model), f"expected one of {', '.join(keys(model))}")


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
