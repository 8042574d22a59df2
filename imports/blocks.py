"""A graph of layers as a stack: what branches and joins again becomes a block.

The walk goes up from the output. Before a join all branches have come from one tensor, its
immediate dominator: the last that every way from the input passes (Lengauer and Tarjan 1979; in a
graph without circles it is the nearest common ancestor, in their tree, of all that is joined). The
branches from there are stacks of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import Any

from ..common.records import dataclass
from .onnx_layers import Layers, Piece, Refused

# Blocks within blocks; tensors on the ways, of which those without weights may be on several.
_DEEPEST, _MOST_STEPS = 12, 40_000


@dataclass(frozen=True)
class Block:
    """Branches that are joined: ``Add`` or ``Concat``."""

    kind: str
    branches: tuple[Stack, ...]


Stack = tuple["Piece | Block", ...]


def stacked(layers: Layers, start: str, end: str) -> Stack:
    """The layers from one tensor to another. Raises Refused where they are no such stack."""
    above, depth, used = {start: start}, {start: 0}, Counter[str]()

    def nearest(names: Sequence[str]) -> str:
        found = names[0]
        for other in names[1:]:
            while found != other:
                if depth[found] > depth[other]:
                    found = above[found]
                else:
                    other = above[other]
        return found

    for name, sources in layers.sources.items():
        above[name] = nearest(sources)
        depth[name] = depth[above[name]] + 1

    def check(name: str, twice: bool, level: int) -> None:
        if twice or level > _DEEPEST or used.total() > _MOST_STEPS:
            raise Refused(
                f"{layers.nodes[name]}: is read across blocks, or lies in more than {_DEEPEST}, "
                "which no stack of layers is"
            )

    def between(start: str, end: str, level: int) -> Stack:
        found: list[Piece | Block] = []
        while end != start:
            used[end] += 1
            weighted = any(each.parameters for each in layers.pieces[end])
            check(end, weighted and used[end] > 1, level)
            if kind := layers.joins.get(end):
                found.append(joined(kind, end, layers.sources[end], level))
            found += reversed(layers.pieces[end])
            end = above[end]
        return (*reversed(found),)

    def joined(kind: str, end: str, names: Sequence[str], level: int) -> Block:
        start = nearest(names)
        check(end, False, level)
        return Block(kind, tuple(between(start, name, level + 1) for name in names))

    return between(start, end, 0)


def flat(stack: Stack) -> Iterator[Piece]:
    """All layers in the order in which a network has them: of a residual the body first."""
    for each in stack:
        if isinstance(each, Piece):
            yield each
        else:
            for branch in _ordered(each):
                yield from flat(branch)


def written(stack: Stack, depth: int = 0) -> list[Any]:
    """The layers as a config has them; names lose their first ``depth`` words."""
    found: list[tuple[str, dict[str, Any], str]] = []
    for each in stack:
        if isinstance(each, Piece):
            found.append((each.kind, dict(each.options), _name(each.path[depth:])))
            continue
        paths = [piece.path[:-1] for piece in flat((each,)) if piece.path]
        common = len([*takewhile(lambda words: len({*words}) == 1, zip(*paths, strict=False))])
        inner = max(common, depth)
        name = _name(paths[0][depth:common]) if common > depth else ""
        branches = [written(branch, inner) for branch in _ordered(each)]
        options: dict[str, Any] = {"branches": branches}
        if each.kind == "Add":
            options = {"body": branches[0], "shortcut": branches[1] or "identity"}
        found.append(("residual" if each.kind == "Add" else "concat", options, name))
    counts = Counter(name for _, _, name in found)
    return [
        {kind: {**options, **({"name": name} if name and counts[name] == 1 else {})}}
        for kind, options, name in found
    ]


def _ordered(block: Block) -> Sequence[Stack]:
    """The branches; of a sum the longest, which is the body, first."""
    return block.branches if block.kind == "Concat" else sorted(block.branches, key=len)[::-1]


def _name(words: Sequence[str]) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]", "_", "_".join(words))
    return f"{'' if name[:1].isalpha() else 'layer_'}{name}"[:64] if name else ""
