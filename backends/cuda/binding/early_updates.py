"""Weights of dense layers that are updated beside the rest of backward, which is the longer part.

The update at the step's end then has less left to do. Their gradients are stored, as without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ....graph.graph import Graph, In, Op
from ....graph.ops import Conv2dBackwardFilter, MatMul, SgdUpdate
from .at_once import AT_END, MARK, follower, key_of

# The choice, and what it says where weights are updated early.
EARLY, WEIGHTS = "early", "weights"
_LONG = (Conv2dBackwardFilter, MatMul)


class EarlyUpdate(Op):
    """The part of an update that follows one gradient, in a launch of its own.

    ``which``: of the update's parameters. The weight counts as read: nothing waits for its new
    value but the next step.
    """

    update: SgdUpdate
    which: int
    gradient: In
    weight: In


def early_updates(graph: Graph, ops: Sequence[Op], choices: Mapping[str, str]) -> list[Op]:
    """The operations, with the update of every dense layer's weights behind all that reads them.

    Not of those that the kernel of their gradient updates; see at_once.
    """
    behind: dict[int, list[Op]] = {}
    for at, op in enumerate(ops):
        if not isinstance(op, MatMul):
            continue
        following = follower(graph, op)
        if following is None or choices.get(key_of(graph, op), "").startswith((MARK, AT_END)):
            continue
        update, which = following
        weight = update.parameters[which]
        end = next(i for i, other in enumerate(ops) if other is update)
        last = max((i for i in range(at, end) if weight in ops[i].reads()), default=at)
        found = EarlyUpdate(
            origin=op.origin, update=update, which=which, gradient=op.c, weight=weight
        )
        # At the end nothing would run beside it.
        if any(isinstance(other, _LONG) for other in ops[last + 1 : end]):
            behind.setdefault(last, []).append(found)
    return [each for at, op in enumerate(ops) for each in (op, *behind.get(at, ()))]
