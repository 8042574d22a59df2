"""A training step on a GPU that need not be there: its calls, and what only timing decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..backends.cuda.cards import CARDS
from ..backends.cuda.dry_backend import DryBackend
from ..common.printable import paragraph
from ..configs import RunConfig
from ..graph.graph import Op
from .explain import Explanation, Foreseen, calls_of, explain, sum_known
from .explain_text import foreseen_text
from .tables import table
from .units import time_text

# What an operation has whose work another one's call may do.
ELSEWHERE = "no call of its own"
TOGETHER = " + "


def foresee(config: RunConfig, file: Path, card: str, notice: Callable[[str], None]) -> Explanation:
    """The explanation of a step on a card, of which nothing was run or measured; ``limit_seconds``
    are by what its maker states.

    card: a name of CARDS. Raises as ``explain``.
    """
    backend = DryBackend(CARDS[card])
    found = explain(config, file, backend, False, notice)
    ships, limits = backend.shipped, backend.limits(backend.chosen)
    rivals = {} if ships else rivals_of(backend)
    operations = []
    for each in found.operations:
        ways = tuple(rivals.get(each.op, ()))
        operations.append(replace(each, limits=limits, candidates=ways if len(ways) > 1 else ()))
    timed = ships.tables[0].config if ships else None
    about = Foreseen(CARDS[card], backend.chosen, limits, backend.needed, timed)
    return replace(found, operations=tuple(operations), foreseen=about)


def rivals_of(backend: DryBackend) -> dict[Op, dict[str, None]]:
    """What operations become with one choice or another: the functions of their calls."""
    found = defaultdict[Op, dict[str, None]](dict)
    for executable in backend.made.others(backend.chosen):
        for name, graph in executable.graphs.items():
            calls = defaultdict[Op, list[str]](list)
            for op, call in calls_of(executable, name):
                calls[op].append(call.function)
            for op in graph.ops:
                found[op][TOGETHER.join(dict.fromkeys(calls[op])) or ELSEWHERE] = None
    return found


def by_layer_text(told: Explanation, width: int | None) -> str:
    """The calls that each layer becomes, and the least time that they take."""
    rows = [("layer", "at least", "calls")]
    for layer, members in told.by_layer().items():
        functions = dict.fromkeys(c.bound.function for each in members for c in each.calls)
        least = sum_known(each.limit_seconds for each in members)
        rows.append((layer, time_text(least), ", ".join(functions) or ELSEWHERE))
    about = foreseen_text(told.foreseen, width) if told.foreseen else []
    return paragraph([*about, "", *table(rows, "<><", width, prose=True), ""])
