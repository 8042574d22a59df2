"""Weights of dense layers that the kernel of their gradient updates itself: it stores none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ....graph.graph import Graph, Op, Tensor
from ....graph.ops import MatMul, SgdUpdate
from ..libraries.kernels import THREADS
from .ending import follows

# What the choice of such a product begins with, in a launch of its own, and in that of the update.
MARK, AT_END = "u", "e"
_NAMED = "/filter/gemm"


def key_of(graph: Graph, op: Op) -> str:
    """The name of the choice of how a weight gradient is computed."""
    return f"{graph.name}/{op.origin[0].layer if op.origin else ''}{_NAMED}"


def follower(graph: Graph, op: MatMul) -> tuple[SgdUpdate, int] | None:
    """The update by SGD that alone follows a weight gradient at the step's end, and which of its
    parameters it is of; None if there is none."""
    if not op.transpose_a or not follows(graph, op, (op.c,)):
        return None
    updates = (each for each in graph.ops if isinstance(each, SgdUpdate))
    found = next(each for each in updates if op.c in each.gradients)
    return found, found.gradients.index(op.c)


def at_end(choice: str) -> str | None:
    """The choice of the same product in the update's launch, if blocks of both have one size."""
    numbers = choice.removeprefix(MARK)
    down, across, split, _ = map(int, numbers.split("-"))
    return f"{AT_END}{numbers}" if 32 * down * across * split == THREADS else None


def is_at_end(name: str, choice: str) -> bool:
    """Whether it is the choice of a product in the update's launch."""
    return name.endswith(_NAMED) and choice.startswith(AT_END)


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


def in_order(graph: Graph, ops: Sequence[Op], choices: Mapping[str, str]) -> list[Op]:
    """The operations in an order in which nothing of a step reads weights once they are updated."""
    found = [*ops]
    for op in ops:
        if not isinstance(op, MatMul) or not choices.get(key_of(graph, op), "").startswith(MARK):
            continue
        following = follower(graph, op)
        if following is None:
            continue
        update, which = following
        weight, at = update.parameters[which], _place(found, op)
        end = _place(found, update)
        last = max((i for i in range(at, end) if weight in found[i].reads()), default=at)
        found.insert(last + 1, op)
        del found[at]
    return found


def gap(spans: Iterable[tuple[int, int]], block: int) -> tuple[int, int]:
    """Where the longest of these stretches of an arena begins, and how many there are, in whole
    blocks of so many numbers: what blocks of the update need not look at."""
    found = [(-(-first // block), last // block) for first, last in spans]
    lengths = [(last - first, first) for first, last in found if last > first]
    length, first = max(lengths, default=(0, 0))
    return first, length


def updated(update: SgdUpdate, gradients: Iterable[Tensor]) -> list[Tensor]:
    """The parameters of an update whose gradients these are."""
    wanted = set(gradients)
    pairs = zip(update.parameters, update.gradients, strict=True)
    return [parameter for parameter, gradient in pairs if gradient in wanted]


def _place(ops: Sequence[Op], wanted: Op) -> int:
    return next(i for i, op in enumerate(ops) if op is wanted)
