"""Reads YAML strictly into RunConfig; the only module that uses PyYAML.

The parser's events are turned into nodes by the core schema of YAML 1.2. What configs do not need
(tags, anchors, aliases, several documents, deep nesting) is refused.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from ..common.errors import ConfigError
from ..common.records import dataclass
from .document import LABEL, Node, Place, Problem, as_document
from .expand import Expander
from .find import LARGEST_FILE, TOO_LARGE, Found, find_config, read_text
from .layer_places import shown_path
from .overrides import apply_override, apply_to_block, is_of, is_of_block
from .paths import with_folders
from .plugins import NONE, Plugins, prepare, with_plugins
from .scalars import resolve
from .schema.run import RunConfig
from .validate import raise_problems, safe_name, validate

_LOG = logging.getLogger("dnnstack.configs")
DEEPEST = 50


@dataclass(frozen=True)
class LoadedConfig:
    """A config with its file: path, text, and whether it is one of the package's.

    ``document``: the file as it was read, with overrides, expanded blocks, and places.
    """

    config: RunConfig
    path: Path
    packaged: bool
    text: str
    document: Node
    overrides: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The path, or the name of a packaged config, whose path is long."""
        return self.path.name if self.packaged else str(self.path)

    def overridden(self, *path: str) -> bool:
        """Whether the key at this path was given by an override, not by the file."""
        node: Node | None = self.document
        for part in path:
            node = node and node.child(part)
        return node is not None and node.place.rank > 0

    @property
    def names_data_folder(self) -> bool:
        """Whether ``data.root`` is written in the file or in an override."""
        data = self.document.child("data")
        return data is not None and data.child("root") is not None


def load_config(
    reference: str | Path | LoadedConfig, overrides: Sequence[str] = (), plugins: Plugins = NONE
) -> LoadedConfig:
    """The config at ``reference``, ``./lenet.yaml`` before the packaged ``lenet.yaml``.

    One that was loaded before is made anew from its text, whatever its file has become.

    overrides: ``key.path=value``, as in ``optimizer.lr=0.05`` or ``layers.0.filters=32``.
    Relative folders of data count from the file, those in overrides from the working directory.
    plugins: which code it may use. Raises ConfigError with every problem, each with its place.
    """
    return load_beside(reference, "", overrides, plugins)[0]


def load_beside(
    reference: str | Path | LoadedConfig,
    key: str,
    overrides: Sequence[str] = (),
    plugins: Plugins = NONE,
    check: Callable[[Node], Sequence[Problem]] = lambda node: (),
    known: Sequence[str] | None = None,
) -> tuple[LoadedConfig, Node | None]:
    """The config, and what stands in the file at ``key``, which is no part of a config.

    check: the problems of that, which are listed with those of the config if this has any, and
    are the caller's to raise otherwise; known: the configs of the package that an error names.
    Overrides of this block are applied to it.
    """
    if isinstance(reference, LoadedConfig):
        found = Found(reference.path, reference.packaged, str(reference.path))
        text = reference.text
    else:
        found = find_config(reference, known=known)
        _LOG.info("config: %s", found.path)
        text = read_text(found)
    name, folder = safe_name(found.path.stem), found.path.parent
    problems: list[Problem] = []
    document = compose(text, found.label, problems)
    if document is None:
        raise_problems(found.label, problems)
    beside = document.value.pop(key, None) if isinstance(document.value, dict) else None
    others = [text for text in overrides if not (key and is_of(key, text))]
    for rank, change in enumerate(overrides, 1):
        if change not in others:
            place = Place.in_override(change, rank)
            beside = beside or Node({}, place, key_place=place)
            apply_to_block(beside, change, place, problems, compose_value)
    own_problems = check(beside) if beside is not None else ()
    try:
        config, root = _read(document, problems, found.label, name, others, folder, plugins)
    except ConfigError:
        if problems and own_problems:
            raise_problems(found.label, [*problems, *own_problems])
        raise
    # One of the package, or one that comes from a pipe, has no folder of the user's.
    own = None if found.packaged or not os.path.isfile(found.path) else folder.absolute()
    config = with_folders(config, root, own)
    return LoadedConfig(config, found.path, found.packaged, text, root, (*overrides,)), beside


def load_mapping(table: Mapping[str, Any], overrides: Sequence[str] = ()) -> LoadedConfig:
    """The config that a mapping holds, with the keys of a file; its name is ``run`` without one.

    Raises ConfigError with every problem, each with its key.
    """
    problems: list[Problem] = []
    root = as_document(table, problems)
    config, root = _read(root, problems, LABEL, "run", overrides)
    config = with_folders(config, root, Path.cwd())
    return LoadedConfig(config, Path(LABEL), False, "", root, (*overrides,))


def parse_config(text: str, name: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The config in ``text``; ``name`` stands for the file in messages and for a missing name."""
    problems: list[Problem] = []
    root = compose(text, name, problems)
    if root is None:
        raise_problems(name, problems)
    return _read(root, problems, name, safe_name(Path(name).stem), overrides)[0]


def _read(
    root: Node,
    problems: list[Problem],
    label: str,
    name: str,
    overrides: Sequence[str],
    folder: Path | None = None,
    plugins: Plugins = NONE,
) -> tuple[RunConfig, Node]:
    """The config of a document, with plugins, overrides and expanded blocks."""
    # They are code to run, which only an option of its own names.
    if any(is_of("plugins", assignment) for assignment in overrides):
        raise ConfigError("--set plugins: name the file with --plugin instead")
    used = prepare(root, label, folder, plugins)
    # Only a mapping has keys to change.
    changes = overrides if isinstance(root.value, dict) else ()
    numbered = [(Place.in_override(text, rank), text) for rank, text in enumerate(changes, 1)]
    for place, assignment in numbered:
        if is_of_block(assignment):
            apply_override(root, assignment, place, problems, compose_value)
    expander = Expander(root, problems)
    expander.write_out(root)
    for place, assignment in numbered:
        if not is_of_block(assignment):
            apply_override(root, assignment, place, problems, compose_value)
            expander.write_out(root)
    config = validate(root, problems, label, name)
    return config if folder is None else with_plugins(config, used), root


def compose(
    text: str,
    label: str,
    problems: list[Problem],
    needed: str = "a config needs data, layers, optimizer and train",
) -> Node | None:
    """The root of a document, which ``label`` stands for in messages; None if it has none.

    needed: what an empty one lacks. The last ones are kept: many trainings of one process read the
    same. Texts in checkpoints are no longer than files may be.
    """
    if len(text) > LARGEST_FILE:
        problems.append(Problem(Place.in_file(label, 1, 1), "", TOO_LARGE))
        return None
    found, noted = _composed(text, label, needed)
    problems += noted
    return found and found.copy()


@lru_cache(maxsize=4)
def _composed(text: str, label: str, needed: str) -> tuple[Node | None, tuple[Problem, ...]]:
    problems: list[Problem] = []
    found = _Composer(label, problems, empty=f"the file is empty; {needed}").compose(text)
    return found, tuple(problems)


def compose_value(text: str, path: str, place: Place, problems: list[Problem]) -> Node | None:
    """The value of an override, by the same rules as a file's."""
    if not text.strip():
        return Node(None, place)
    return _Composer("", problems, path, place).compose(text)


class _Stop(Exception):
    """The rest of the document cannot be read; the problem has been noted."""


class _Composer:
    def __init__(
        self,
        label: str,
        problems: list[Problem],
        path: str = "",
        place: Place | None = None,
        empty: str = "expected a value, not a comment",
    ) -> None:
        self.label, self.problems = label, problems
        self.fixed = place
        self.empty = empty
        self.path = [path] if path else []

    def compose(self, text: str) -> Node | None:
        """The document's root; None if it could not be read."""
        events = yaml.parse(text, Loader=yaml.SafeLoader)
        try:
            return self._document(events)
        except _Stop:
            return None
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            line, column = before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1
            code = error.character if isinstance(error.character, int) else ord(error.character)
            self._note_at(
                self.fixed or Place.in_file(self.label, line, column),
                f"the character U+{code:04X} is not allowed in YAML",
            )
        except yaml.MarkedYAMLError as error:
            message, mark = _explained(error)
            self._note_at(self._place(mark), message)
        return None

    def _document(self, events: Iterator[yaml.Event]) -> Node:
        next(events)
        first = next(events)
        if isinstance(first, yaml.StreamEndEvent):
            place = self.fixed or Place.in_file(self.label, 1, 1)
            self._note_at(place, self.empty)
            raise _Stop
        root = self._node(next(events), events, 1)
        next(events)
        after = next(events)
        if not isinstance(after, yaml.StreamEndEvent):
            self._note(after, "a second document begins here; a config is one document")
        return root

    def _node(self, event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Node:
        place = self._place(event.start_mark)
        if depth > DEEPEST:
            del self.path[3:]
            self._note(event, f"nested more than {DEEPEST} levels deep; too deep for a config")
            raise _Stop
        if isinstance(event, yaml.AliasEvent):
            self._note(event, f"alias '*{event.anchor}': aliases are not supported; repeat it")
            return Node(None, place, broken=True)
        assert isinstance(event, (yaml.CollectionStartEvent, yaml.ScalarEvent))
        if event.anchor is not None:
            self._note(event, f"anchor '&{event.anchor}': anchors are not supported; remove it")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._note(event, f"tag '{tag}': tags are not supported; remove it")
        if isinstance(event, yaml.SequenceStartEvent):
            return Node(list(self._items(events, depth)), place, broken=event.tag is not None)
        if isinstance(event, yaml.MappingStartEvent):
            return Node(self._mapping(events, depth), place, broken=event.tag is not None)
        assert isinstance(event, yaml.ScalarEvent)
        value = resolve(event.value) if event.style is None else event.value
        return Node(value, place, event.value, broken=event.tag is not None)

    def _items(self, events: Iterator[yaml.Event], depth: int) -> Iterator[Node]:
        for index, event in enumerate(events):
            if isinstance(event, yaml.SequenceEndEvent):
                return
            self.path.append(str(index))
            yield self._node(event, events, depth + 1)
            self.path.pop()

    def _mapping(self, events: Iterator[yaml.Event], depth: int) -> dict[str, Node]:
        mapping: dict[str, Node] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._node(event, events, depth + 1)
            if isinstance(key.value, (list, dict)):
                self._note(event, "a key must be a word")
                raise _Stop
            self.path.append(key.text)
            value = self._node(next(events), events, depth + 1)
            value.key_place = key.place
            if key.text in mapping:
                first = mapping[key.text].key_place
                line = f", first in line {first.line}" if first and not self.fixed else ""
                self._note(event, f"the key appears twice{line}; keep one")
                value.broken = True
            mapping[key.text] = value
            self.path.pop()
        return mapping

    def _place(self, mark: Any) -> Place:
        return self.fixed or Place.in_file(self.label, mark.line + 1, mark.column + 1)

    def _note(self, event: yaml.Event, message: str) -> None:
        self._note_at(self._place(event.start_mark), message)

    def _note_at(self, place: Place, message: str) -> None:
        self.problems.append(Problem(place, shown_path(self.path), message))


def _explained(error: yaml.MarkedYAMLError) -> tuple[str, Any]:
    """The meaning of PyYAML's message for the writer of a config, and its place."""
    problem = error.problem or ""
    mark: Any = error.problem_mark or error.context_mark
    start: Any = error.context_mark or mark
    if "'\\t'" in problem:
        return "found a tab; indent YAML with spaces", mark
    if problem == "mapping values are not allowed here":
        return ("unexpected ':'; check the indentation and the line above", mark)
    if problem == "could not find expected ':'":
        return "a key without ':' (or an indentation that does not match the line above)", start
    if problem.startswith("expected <block end>"):
        return "the indentation does not match the lines above", mark
    if problem.startswith("expected ',' or"):
        opened, closed = "{}" if "mapping" in (error.context or "") else "[]"
        return f"expected ',' or '{closed}' after the '{opened}' of line {start.line + 1}", mark
    if "flow node" in (error.context or ""):
        return "expected a value; is a bracket not closed?", mark
    if "quoted scalar" in (error.context or "") and "end of stream" in problem:
        return "a quotation mark that is never closed", start
    context = f"{error.context}: " if error.context else ""
    return f"not valid YAML: {context}{problem}", mark
