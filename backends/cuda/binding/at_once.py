"""Weights of a dense layer whose gradient the launch of the update computes, and stores none."""

from __future__ import annotations

from collections.abc import Mapping

from ....graph.graph import Graph
from ....graph.ops import MatMul, SgdUpdate
from ..libraries.layout import ceil_div
from .choices import AtEnd, parsed
from .ending import follows

_NAMED = "/filter/gemm"


def follower(graph: Graph, op: MatMul) -> tuple[SgdUpdate, int] | None:
    """The update by SGD that alone follows a weight gradient at the step's end, and which of its
    parameters it is of; None if there is none."""
    if not op.transpose_a or not follows(graph, op, (op.c,)):
        return None
    updates = (each for each in graph.ops if isinstance(each, SgdUpdate))
    found = next(each for each in updates if op.c in each.gradients)
    return found, found.gradients.index(op.c)


def is_at_end(name: str, choice: str) -> bool:
    """Whether it is the choice of a product in the update's launch."""
    return name.endswith(_NAMED) and isinstance(parsed(name, choice), AtEnd)


def without_ends(choices: Mapping[str, str], like: str) -> dict[str, str]:
    """The choices without a product in the launch of the update of the section of a name."""
    section = like.partition("/")[0]
    return {
        name: taken
        for name, taken in choices.items()
        if not (is_at_end(name, taken) and name.partition("/")[0] == section)
    }


def fits(name: str, choice: str, choices: Mapping[str, str]) -> bool:
    """Whether a choice goes with the others: the update's launch makes one product at most."""
    others = {other: taken for other, taken in choices.items() if other != name}
    return not is_at_end(name, choice) or len(without_ends(others, name)) == len(others)


def gap(first: int, last: int, block: int) -> tuple[int, int]:
    """Where this stretch of an arena begins, and how long it is, in whole blocks of so many
    numbers: what blocks of the update need not look at."""
    first, last = ceil_div(first, block), last // block
    return (first, last - first) if last > first else (0, 0)
