"""Expands ``repeat`` and the uses of ``blocks`` before the schema sees the layers.

    blocks:
      basic:
        parameters: {filters: , stride: 1}
        layers:
          - conv2d: {filters: $filters, kernel_size: 3, stride: $stride}
          - relu
    layers:
      - basic: {filters: 32, stride: 2}
      - repeat: {times: 3, layers: [{basic: {filters: 32}}]}

Both are abbreviations: the same layers written in full have the same names. Every node keeps the
place and path where it was written, and a note on the blocks that use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field, replace

from ..common.options import LARGEST
from ..common.records import dataclass
from .blocks import PARAMETER, REPEAT, Block, read_blocks
from .document import Node, Place, Problem
from .layer_places import shown_path
from .schema.layers import LAYER_KINDS, NESTED
from .suggest import did_you_mean, nearest

MOST_LAYERS = 10_000
# An expanded config must be readable again, and YAML is read to a depth of 50.
MOST_NESTED = 8

Path = tuple[str, ...]


@dataclass(frozen=True)
class Scope:
    """The context of expanded layers: the block, its arguments, and its uses.

    ``chain``: the enclosing blocks; ``depth``: the number of enclosing composites.
    """

    path: Path
    block: str = ""
    arguments: Mapping[str, Node] = field(default_factory=dict)
    note: str = ""
    chain: tuple[str, ...] = ()
    depth: int = 0

    def into(self, *keys: object) -> Scope:
        return replace(self, path=(*self.path, *map(str, keys)))


class _Stop(Exception):
    """Too many layers; the problem has been noted."""


class Expander:
    """Removes the blocks from a document and expands its layers; notes what is wrong."""

    def __init__(self, root: Node, problems: list[Problem]) -> None:
        self._problems = problems
        blocks = root.value.pop("blocks", None) if isinstance(root.value, dict) else None
        self._blocks = read_blocks(blocks, problems) if blocks is not None else {}
        self._count = 0

    def write_out(self, root: Node) -> None:
        """Expand repeats and uses of blocks in the document's layers, and name the layers.

        Layers that are already expanded are not changed.
        """
        layers = root.child("layers")
        if layers is None or not isinstance(layers.value, list):
            return
        self._count = 0
        try:
            layers.value = self._stack(layers.value, Scope(("layers",)))
        except _Stop:
            layers.broken = True
        _label(layers.value, Counter())

    def _note(self, place: Place | None, at: Scope | Node, message: str) -> None:
        assert place is not None
        self._problems.append(Problem(place, shown_path(at.path), message, at.note))

    def _stack(self, items: list[Node], scope: Scope) -> list[Node]:
        """The items of a list of layers, expanded."""
        written: list[Node] = []
        for index, item in enumerate(items):
            written += self._item(item, scope.into(index))
        return written

    def _item(self, item: Node, scope: Scope) -> list[Node]:
        self._count += 1
        if self._count > MOST_LAYERS:
            message = f"more than {MOST_LAYERS} layers; repeat less"
            self._note(item.place, scope, message)
            raise _Stop
        kind = item.only_key() or (item.value if isinstance(item.value, str) else "")
        if kind == REPEAT:
            return self._repeat(item, scope)
        if kind in self._blocks:
            block = self._blocks[kind]
            return self._use(item, block, scope) if block is not None else _bad(item, scope)
        if kind.startswith("$") and not item.path:
            argument = self._argument(item, scope)
            if isinstance(argument.value, list):
                return self._stack(argument.value, scope)
            return [argument] if argument.broken else self._item(argument, scope)
        if kind not in LAYER_KINDS and self._unknown(item, kind, scope):
            return _bad(item, scope)
        return [self._layer(item, kind, scope)]

    def _unknown(self, item: Node, kind: str, scope: Scope) -> bool:
        """Report a misspelt block; the schema reports other unknown layers."""
        near = nearest(kind, [*LAYER_KINDS, *self._blocks, REPEAT])
        if near not in self._blocks and near != REPEAT:
            return False
        inner = item.child(kind)
        place = (inner and inner.key_place) or item.place
        message = f"unknown layer '{kind}'; did you mean '{near}'?"
        self._note(place, scope, message)
        return True

    def _layer(self, item: Node, kind: str, scope: Scope) -> Node:
        node = self._copied(item, scope)
        for key, lists in _lists(node, kind):
            inner = replace(scope.into(kind, key), depth=scope.depth + 1)
            if inner.depth > MOST_NESTED:
                message = f"layers nested more than {MOST_NESTED} deep"
                self._note(lists.place, inner, message)
                lists.broken = True
                continue
            if _branches(lists):
                for index, branch in enumerate(lists.items):
                    if isinstance(branch.value, list):
                        branch.value = self._stack(branch.items, inner.into(index))
            else:
                lists.value = self._stack(lists.items, inner)
        return node

    def _copied(self, node: Node, scope: Scope) -> Node:
        """A copy with the arguments substituted for parameters; it keeps its places."""
        if isinstance(node.value, str) and "$" in node.value and not node.path:
            return self._argument(node, scope)
        path, note = node.path or scope.path, node.note or scope.note
        copy = replace(node, path=path, note=note)
        if isinstance(node.value, dict):
            copy.value = {
                key: self._copied(inner, scope.into(key)) for key, inner in node.value.items()
            }
        elif isinstance(node.value, list):
            copy.value = [
                self._copied(inner, scope.into(at)) for at, inner in enumerate(node.value)
            ]
        return copy

    def _argument(self, node: Node, scope: Scope) -> Node:
        name = PARAMETER.fullmatch(str(node.value))
        if name is not None and name[1] in scope.arguments:
            given = scope.arguments[name[1]]
            return replace(self._copied(given, scope), key_place=node.key_place)
        if name is None:
            message = f"expected a parameter alone, such as $filters (got {node.described()})"
        elif not scope.block:
            message = f"'{node.value}': parameters exist only in the layers of blocks"
        else:
            known = list(scope.arguments)
            otherwise = f"it has {', '.join(known)}" if known else "it has none"
            hint = did_you_mean(name[1], known, otherwise)
            message = f"block '{scope.block}' has no parameter '{name[1]}'; {hint}"
        self._note(node.place, Scope(scope.path), message)
        return replace(node, broken=True, path=scope.path)

    def _repeat(self, item: Node, scope: Scope) -> list[Node]:
        options, scope = item.child(REPEAT), scope.into(REPEAT)
        if options is None or not isinstance(options.value, dict):
            message = "expected times and layers, as in repeat: {times: 3, layers: [relu]}"
            self._note(options.place if options else item.place, scope, message)
            return _bad(item, scope)
        unknown = [key for key in options.value if key not in ("times", "layers")]
        for key in unknown:
            hint = did_you_mean(key, ("times", "layers"), "expected times or layers")
            place, message = options.value[key].key_place, f"unknown key; {hint}"
            self._note(place, scope.into(key), message)
        for key, what in (("times", "How many times."), ("layers", "The layers.")):
            if key not in options.value:
                message = f"required key is missing ({what})"
                if nearest(key, unknown) is None:
                    self._note(options.key_place, scope.into(key), message)
                return _bad(item, scope)
        times = self._copied(options.value["times"], scope.into("times"))
        count = times.value
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= LARGEST:
            if not times.broken:
                message = f"expected a whole number of at least 1 (got {times.described()})"
                self._note(times.place, times, message)
            return _bad(item, scope)
        layers = options.value["layers"]
        if isinstance(layers.value, str) and "$" in layers.value:
            layers = self._copied(layers, scope.into("layers"))
        if not isinstance(layers.value, list) or not layers.value:
            message = f"expected a list of at least one layer (got {layers.described()})"
            self._note(layers.place, scope.into("layers"), message)
            return _bad(item, scope)
        within = scope.into("layers")
        return [node for _ in range(count) for node in self._stack(layers.value, within)]

    def _use(self, item: Node, block: Block, scope: Scope) -> list[Node]:
        place = item.place
        options = item.child(block.name)
        scope = scope.into(block.name)
        note = f"in block '{block.name}', used at {place}"
        if scope.note:
            note += f", {scope.note}"
        if block.name in scope.chain:
            way = " -> ".join([*scope.chain, block.name])
            self._note(place, scope, f"a block cannot use itself ({way})")
            return _bad(item, scope)
        given: dict[str, Node] = {}
        if options is not None and options.value is not None:
            if not isinstance(options.value, dict):
                message = f"expected the parameters of block '{block.name}' as a mapping"
                got = f"{message} (got {options.described()})"
                self._note(options.place, scope, got)
                return _bad(item, scope)
            given = options.value
        known = list(block.parameters)
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        for name, argument in given.items():
            if name not in block.parameters:
                hint = did_you_mean(name, known, takes)
                message = f"block '{block.name}' has no parameter '{name}'; {hint}"
                self._note(argument.key_place, scope.into(name), message)
        arguments: dict[str, Node] = {}
        for name, default in block.parameters.items():
            if name in given:
                node = self._copied(given[name], scope.into(name))
                told = f"for ${name} in block '{block.name}'"
                arguments[name] = replace(node, note=node.note or told)
            elif default is not None:
                path = ("blocks", block.name, "parameters", name)
                arguments[name] = self._copied(default, Scope(path, note=note))
            else:
                if nearest(name, [key for key in given if key not in block.parameters]) is None:
                    message = f"block '{block.name}' needs the parameter '{name}'"
                    self._note(place, scope, message)
                arguments[name] = Node(None, place, broken=True, path=scope.path)
        inside = Scope(
            ("blocks", block.name, "layers"),
            block.name,
            arguments,
            note,
            (*scope.chain, block.name),
            scope.depth,
        )
        return self._stack(block.layers.items, inside)


def _bad(item: Node, scope: Scope) -> list[Node]:
    """The item in a form for which the schema reports no further problem."""
    return [replace(item, broken=True, path=scope.path)]


def _label(items: list[Node], counts: Counter[str]) -> None:
    """Name the layers: by their ``name``, else ``<type>_<n>`` counted depth first."""
    for item in items:
        kind = item.only_key() or item.text
        counts[kind] += 1
        options = item.child(kind)
        own = options.child("name") if options is not None else None
        item.label = own.text if own is not None else f"{kind}_{counts[kind]}"
        for _, lists in _lists(item, kind):
            for branch in _branches(lists) or [lists]:
                _label(branch.items, counts)


def _lists(item: Node, kind: str) -> Iterator[tuple[str, Node]]:
    """The lists that a layer of this kind has for its layers, by their keys."""
    options = item.child(kind)
    for key in NESTED.get(kind, ()):
        lists = options.child(key) if options is not None else None
        if lists is not None and isinstance(lists.value, list):
            yield key, lists


def _branches(lists: Node) -> list[Node]:
    """The lists of a list of lists of layers; none if it is a list of layers."""
    return [each for each in lists.items if isinstance(each.value, list)]
