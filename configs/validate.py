"""Validates a document: gives the config, or every problem with its place in the document."""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..common.errors import ConfigError
from ..common.options import SMALL
from ..common.records import dataclass
from .blocks import REPEAT
from .document import Node, Place, Problem
from .layer_places import shown_path
from .schema.base import Model, NamedModel, TypedModel
from .schema.extended import config_model
from .schema.layer_base import LayerConfig
from .schema.layers import NESTED
from .schema.run import RunConfig
from .schema.shape import field_models, keys, kind_word, kinds
from .suggest import did_you_mean, expected, listed, meant_value, nearest

M = TypeVar("M", bound=Model)
_MOST_LINES, _MOST_CHARACTERS = 50, 10_000
# The number of characters of a wrong word that a message repeats.
_LONGEST = 60
# The block that a sweep takes out of a config before the rest of it is checked.
SEARCH = "search"
_NO_KEYS = {
    SEARCH: "a config with a search is for dnnstack sweep; leave the block out to train",
    "stages": "a config with stages is for dnnstack compress",
    "blocks": "cannot be set as a whole, because blocks are expanded first; write them in the file",
}
"""What a config is told of keys that others have, or that are gone when it is validated."""
_EITHER = "required: "
"""How a mapping says that it lacks one of several keys."""
_FOLLOWING = ("default_factory_not_called", "too_short")
"""Errors that only repeat another one: of a default's value, of every item of a list."""


def validate(root: Node, problems: list[Problem], label: str, name: str) -> RunConfig:
    """The config in ``root``; ``name`` is the run's name if the document has none.

    Raises ConfigError with ``problems`` and all that the schema finds, in the order of the file.
    """
    plain = {"name": name, **root.plain()} if isinstance(root.value, dict) else {}
    config = validated(root, problems, label, config_model(), plain)
    _mark(config.layers, root.child("layers"))
    if _length_overridden(root):
        config.train.mark_length()
    return config


def validated(
    root: Node, problems: list[Problem], label: str, whole: type[M], plain: dict[str, Any]
) -> M:
    """The model ``whole`` of the document in ``root``, whose plain data are ``plain``.

    Raises ConfigError as ``validate`` does.
    """
    if not isinstance(root.value, dict):
        if not root.broken:
            expected = f"expected a mapping with the keys {', '.join(_written_keys(whole))}"
            problems.append(Problem(root.place, "", f"{expected} (got {root.described()})"))
        raise_problems(label, problems)
    found = None
    try:
        found = whole.model_validate(plain)
    except ValidationError as error:
        errors = error.errors()
        errors += _of_meant_kinds(root, errors, whole, plain)
        meant = _meant(root, errors, whole)
        for details in errors:
            spot = _locate(root, details["loc"], whole)
            problem = _at(spot, details)
            if problem and not _is_meant(problem, details["type"], meant):
                problems.append(replace(problem, note=spot.note))
    if problems or found is None:
        raise_problems(label, problems)
    return found


def _length_overridden(root: Node) -> bool:
    """Whether an override gave the length of the training, but none the schedule."""
    train, schedule = root.child("train"), root.child("schedule")
    lengths = (train and train.child("max_steps"), train and train.child("epochs"))
    return any(n and _overrides(n) for n in lengths) and not (schedule and _overrides(schedule))


def _mark(value: Any, node: Node | None) -> None:
    """Give every layer its place."""
    if isinstance(value, tuple) and node is not None and isinstance(node.value, list):
        for item, inner in zip(value, node.items, strict=True):
            _mark(item, inner)
    elif isinstance(value, LayerConfig) and node is not None:
        options = node.child(value.type) or node
        notes = [node.note] if node.note else []
        if changes := sorted(_overrides(node) - {node.place}):
            notes.append(f"changed by {', '.join(map(str, changes))}")
        value.mark(f"{node.place} ({'; '.join(notes)})" if notes else str(node.place))
        for key in NESTED.get(value.type, ()):
            _mark(getattr(value, key), options.child(key))


def _overrides(node: Node) -> set[Place]:
    """The overrides that gave the node or a part of it."""
    inner = node.value.values() if isinstance(node.value, dict) else node.items
    own = {node.place} if node.place.rank else set()
    return own.union(*map(_overrides, inner))


def raise_problems(label: str, problems: list[Problem]) -> NoReturn:
    """Raise ConfigError with a line for each problem, sorted by place."""
    lines = [str(problem) for problem in sorted(set(problems))]
    # Those of the command line are no errors of the file.
    label = label if any(problem.place.rank == 0 for problem in problems) else "--set"
    if len(lines) == 1:
        raise ConfigError(lines[0])
    shown = lines[:_MOST_LINES]
    while sum(map(len, shown)) > _MOST_CHARACTERS:
        shown.pop()
    rest = [f"... and {len(lines) - len(shown)} more"] if len(lines) > len(shown) else []
    raise ConfigError(f"{label}: {len(lines)} errors", *shown, *rest)


def safe_name(stem: str) -> str:
    """A file's stem as the name of a run: characters that are not allowed become ``-``."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-.")[:64]
    return name if name and name != "latest" else "run"


@dataclass
class _Spot:
    """The position of a pydantic location in the document and in the schema."""

    node: Node
    models: list[type[Model]]
    whole: type[Model]
    path: list[str] = field(default_factory=list)
    key_place: Place | None = None
    above: type[Model] | None = None
    kind: str = ""
    note: str = ""
    missing: bool = False
    broken: bool = False
    label: str = ""
    parent: Node | None = None

    def shown(self) -> str:
        """The path in a message."""
        return shown_path(self.path, self.label)

    def descend(self, key: str | int) -> None:
        self.path.append(str(key))
        child = self.node.child(key)
        if child is None:
            self.missing = isinstance(key, str)
            return
        self.parent, self.node = self.node, child
        self.label = ".".join(part for part in (self.label, child.label) if part)
        if child.path:
            if child.note or REPEAT in child.path:
                # A layer of a block or repeat is several, with a name each.
                self.label = ""
            self.path, self.note = list(child.path), child.note
        self.key_place = child.key_place
        self.broken = self.broken or child.broken

    def choose(self, kind: str) -> bool:
        """Choose ``kind`` if the union has it; the options of a named kind are one level deeper."""
        chosen = [model for model in self.models if kind in kinds(model)]
        if not chosen:
            return False
        self.models, self.kind = chosen, kind
        if issubclass(chosen[0], NamedModel):
            if self.node.only_key() == kind:
                self.descend(kind)
            else:
                self.path.append(kind)
        return True


def _locate(root: Node, location: tuple[int | str, ...], whole: type[Model]) -> _Spot:
    spot = _Spot(root, [whole], whole, broken=root.broken)
    for element in location:
        if isinstance(element, int):
            spot.descend(element)
            continue
        if len(spot.models) > 1 and spot.choose(element):
            continue
        spot.above = spot.models[0] if spot.models else None
        spot.models = field_models(spot.above, element) if spot.above else []
        spot.descend(element)
    return spot


def _meant(root: Node, errors: list[ErrorDetails], whole: type[Model]) -> set[str]:
    """The paths of the keys that unknown keys beside them were probably meant to be."""
    spots = [_locate(root, e["loc"], whole) for e in errors if e["type"] == "extra_forbidden"]
    return {
        shown_path([*spot.path[:-1], near], spot.label)
        for spot in spots
        if spot.above and (near := nearest(spot.path[-1], keys(spot.above)))
    }


def _is_meant(problem: Problem, kind: str, meant: set[str]) -> bool:
    """Whether what is missing is there under a name that is nearly right."""
    names = problem.message.removeprefix(_EITHER).split(" or ")
    either = problem.message.startswith(_EITHER)
    one = either and any(f"{problem.path}.{name}" in meant for name in names)
    return one or (kind == "missing" and problem.path in meant)


def _of_meant_kinds(
    root: Node, errors: list[ErrorDetails], whole: type[Model], plain: dict[str, Any]
) -> list[ErrorDetails]:
    """The errors beside a ``type`` that is unknown: those of the word that was probably meant.

    If no word is near, those that the values have with every type.
    """
    found: list[ErrorDetails] = []
    for error in errors:
        location = error["loc"]
        if error["type"] != "union_tag_invalid" or len(location) != 1:
            continue
        spot, section = _locate(root, location, whole), str(location[0])
        written, given = spot.node.child("type"), plain.get(section)
        if written is None or not isinstance(given, dict):
            continue
        known = [kind for model in spot.models for kind in kinds(model)]
        meant = nearest(written.text, known)
        first, *others = (
            _errors_in(section, whole, {**plain, section: {**given, "type": kind}})
            for kind in ([meant] if meant else known)
        )
        found += [
            details
            for key, details in first.items()
            if all(key in other for other in others)
            and (meant or details["type"] != "extra_forbidden")
        ]
    return found


def _errors_in(
    section: str, whole: type[Model], plain: dict[str, Any]
) -> dict[tuple[str, ...], ErrorDetails]:
    """The errors of one section, by what and where they are, whatever the section's type."""
    try:
        whole.model_validate(plain)
    except ValidationError as error:
        errors = error.errors()
        inside = [details for details in errors if details["loc"][:1] == (section,)]
        return {(e["type"], *map(str, e["loc"][2:])): e for e in inside}
    return {}


def _at(spot: _Spot, details: ErrorDetails) -> Problem | None:
    kind = details["type"]
    context: dict[str, Any] = details.get("ctx", {})
    if "key" in context:
        spot.choose(context["key"])
    if "inner" in context:
        spot.above = spot.models[0]
        spot.descend(context["inner"])
    if spot.broken or kind in _FOLLOWING:
        return None
    if context.get("missing"):
        spot.path.pop()
    path = spot.shown()
    at_key = spot.key_place or spot.node.place
    if kind == "extra_forbidden" or "inner" in context:
        return Problem(at_key, path, _unknown_key(spot))
    if kind == "missing":
        return Problem(at_key, path, _missing(spot))
    if kind == "union_tag_invalid":
        return _unknown_kind(spot, path)
    if spot.missing and kind == "literal_error":
        return Problem(at_key, path, f"expected {listed(_words(context))}")
    if spot.missing or "at_key" in context:
        changed = spot.node.place_with("type", *re.findall(r"\w+", details["msg"]))
        return Problem(changed if changed.rank else at_key, path, details["msg"])
    message = _wrong_value(kind, context, details["msg"], spot.node)
    return Problem(spot.node.place_with("type", *re.findall(r"\w+", message)), path, message)


def _written_keys(model: type[Model]) -> list[str]:
    """The keys of a mapping in a file, where a config may have blocks, which are expanded first."""
    found = keys(model)
    if model is config_model():
        found.insert(found.index("layers") + 1, "blocks")
    return found


def _unknown_key(spot: _Spot) -> str:
    model = spot.above
    known = _written_keys(model) if model else []
    word = spot.path[-1]
    if ":" in word:
        return "unknown key; put a space after the ':'"
    if spot.whole is config_model() and len(spot.path) == 1 and word in _NO_KEYS:
        return _NO_KEYS[word]
    whole = model is spot.whole
    near, elsewhere = nearest(word, known), _in_a_section(word, spot.path[0], spot.whole)
    if found := elsewhere or near if whole else near or elsewhere:
        return f"unknown key; did you mean '{found}'?"
    owner = f"'{spot.kind}'" if spot.kind else "it"
    takes = f"expected {listed(known)}" if known else f"{owner} takes no options"
    if model and issubclass(model, (NamedModel, TypedModel)) and spot.kind and known:
        takes = f"the {model.noun} '{spot.kind}' takes {', '.join(known)}"
        chosen = spot.parent.child("type") if spot.parent is not None else None
        if chosen is not None and chosen.place.rank and not spot.node.place.rank:
            # The file has a key of the kind that was there before.
            fields = model.model_fields.items()
            needed = [name for name, each in fields if each.is_required() and name != "type"]
            given = ", ".join([f"type: {spot.kind}", *(f"{name}: ..." for name in needed)])
            section = ".".join(spot.path[:-1])
            takes += f"; to replace those of the file: --set '{section}={{{given}}}'"
    return f"unknown key; {takes}"


def _in_a_section(word: str, here: str, whole: type[Model]) -> str | None:
    """``optimizer.lr`` for ``lr``: the section, other than ``here``, that has this key."""
    for section in whole.model_fields:
        for model in field_models(whole, section):
            if section != here and word in keys(model) and not issubclass(model, NamedModel):
                return f"{section}.{word}"
    return None


def _missing(spot: _Spot) -> str:
    description = spot.above.model_fields[spot.path[-1]].description if spot.above else None
    return f"required key is missing ({description})" if description else "required key is missing"


def _unknown_kind(spot: _Spot, path: str) -> Problem:
    known = [kind for model in spot.models for kind in kinds(model)]
    word = kind_word(spot.models)
    named = issubclass(spot.models[0], NamedModel)
    node, key = spot.node, spot.node.only_key()
    place, written = node.place, node.text
    if named and key is not None:
        written = key
        inner = node.child(key)
        place = (inner and inner.key_place) or place
    elif isinstance(node.value, dict):
        inner = node.child("type")
        if inner is not None:
            path, place, written = f"{path}.type", inner.place, inner.text
    hint = did_you_mean(written, known, f"expected {listed(known)}")
    if not written:
        return Problem(place, path, f"expected {listed(known)} (got nothing)")
    shown = written if len(written) <= _LONGEST else f"{written[:_LONGEST]}..."
    return Problem(place, path, f"unknown {word} '{shown}'; {hint}")


_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "model_type": "a mapping",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
}


def _words(context: dict[str, Any]) -> list[str]:
    """The words, or the numbers, that a literal may be."""
    expected: str = context["expected"]
    return re.findall(r"'([^']*)'", expected) or re.split(", | or ", expected)


def _wrong_value(kind: str, context: dict[str, Any], message: str, node: Node) -> str:
    got = node.described()
    if kind == "literal_error":
        return expected(_words(context), node.text, got)
    if kind in _EXPECTED:
        # An integer limit in full: 2147483647, not 2.14748e+09.
        limits = {k: f"{v:g}" if isinstance(v, float) else v for k, v in context.items()}
        if context.get("ge") == SMALL and isinstance(node.value, (int, float)) and node.value <= 0:
            kind, limits = "greater_than", {"gt": 0}
        message = "expected " + _EXPECTED[kind].format(**limits)
    hint = meant_value(kind, node)
    return f"{message} (got {got}{hint})" if message.startswith("expected") else message
