"""A training step on a GPU that need not be there: its calls, and what only timing decides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..backends.cuda.cards import CARDS
from ..backends.cuda.dry_backend import DryBackend
from ..configs import RunConfig
from ..graph.graph import Op
from .explain import Explanation, Foreseen, calls_of, explain, sum_known
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
    limits = backend.limits(config.run.precision)
    operations = [replace(each, limits=limits) for each in found.operations]
    if not backend.table.config:
        rivals = rivals_of(backend)
        operations = [
            replace(each, candidates=candidates)
            if len(candidates := tuple(rivals.get(each.op, ()))) > 1
            else each
            for each in operations
        ]
    about = Foreseen(
        card=backend.device.name,
        precision=backend.precision(config.run.precision),
        limits=limits,
        processors=backend.device.count,
        memory=int(backend.device.gigabytes * 1e9),
        needed=backend.needed,
        timed=backend.table.config or None,
    )
    return replace(found, operations=tuple(operations), foreseen=about)


def rivals_of(backend: DryBackend) -> dict[Op, dict[str, None]]:
    """What operations become with one choice or another: the functions of their calls."""
    found = defaultdict[Op, dict[str, None]](dict)
    for executable in backend.others():
        for name, graph in executable.graphs.items():
            calls = defaultdict[Op, list[str]](list)
            for op, call in calls_of(executable, name):
                calls[op].append(call.function)
            for op in graph.ops:
                found[op][TOGETHER.join(dict.fromkeys(calls[op])) or ELSEWHERE] = None
    return found


def by_layer(told: Explanation) -> list[dict[str, Any]]:
    """Of each layer its name, the functions of its calls, and the least seconds that they take."""
    return [
        {
            "name": layer,
            "calls": [*dict.fromkeys(c.bound.function for each in members for c in each.calls)],
            "limit_seconds": sum_known(each.limit_seconds for each in members),
        }
        for layer, members in told.by_layer().items()
    ]


def by_layer_text(told: Explanation, width: int | None) -> list[str]:
    """The same as a table."""
    rows = [
        (each["name"], time_text(each["limit_seconds"]), ", ".join(each["calls"]) or ELSEWHERE)
        for each in by_layer(told)
    ]
    return table([("layer", "at least", "calls"), *rows], "<><", width, prose=True)
