"""Choosing the layouts of convolutions by timing whole training steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from ...graph.graph import Graph
from ...graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter
from .convolution import Convolution, candidate_layouts, default_layout, layer_of, tensors_of

Seconds = Callable[[Graph, Mapping[str, str], int], float]
# A change must win by more than the noise of a short timing.
GAIN = 0.98
CHOICES = {Conv2d: "", Conv2dBackwardFilter: "/filter", Conv2dBackwardData: "/data"}
BUDGET_SECONDS = 10.0
REPEATS = 5
# Long steps are measured well by fewer runs.
REPEATED_SECONDS = 0.3


def convolutions(graph: Graph) -> list[str]:
    """What can be chosen: ``<layer>`` for forward, ``<layer>/data`` and ``<layer>/filter``."""
    return list(default_choices([graph]))


def default_choices(graphs: Iterable[Graph]) -> dict[str, str]:
    """A layout for every convolution without a trial."""
    choices: dict[str, str] = {}
    for op in (op for graph in graphs for op in graph.ops):
        if isinstance(op, Convolution):
            name = layer_of(op) + CHOICES[type(op)]
            choices[name] = default_layout(tensors_of(op)[0].shape[1])
    return choices


def search(graph: Graph, defaults: Mapping[str, str], seconds: Seconds) -> dict[str, str]:
    """The fastest choices found: the best uniform start, then whole layers, then single phases.

    A layer's phases move together first, for one alone would pay for copies between layouts.
    ``seconds(graph, choices, repeats)`` is the time of a step. Begins no trial after
    BUDGET_SECONDS.
    """
    deadline = time.perf_counter() + BUDGET_SECONDS
    names = convolutions(graph)
    starts = [dict(defaults), *(dict.fromkeys(names, layout) for layout in candidate_layouts())]
    best, fastest = dict(defaults), float("inf")
    for choices in starts:
        if time.perf_counter() > deadline:
            break
        spent = seconds(graph, choices, REPEATS)
        if spent < fastest:
            best, fastest = choices, spent
    repeats = max(2, min(REPEATS, int(REPEATED_SECONDS / fastest)))
    by_layer: dict[str, list[str]] = {}
    for name in names:
        by_layer.setdefault(name.partition("/")[0], []).append(name)
    for move in (*by_layer.values(), *([name] for name in names)):
        for layout in candidate_layouts():
            changed = best | dict.fromkeys(move, layout)
            if changed == best or time.perf_counter() > deadline:
                continue
            spent = seconds(graph, changed, repeats)
            if spent < GAIN * fastest and spent < GAIN * seconds(graph, best, repeats):
                best, fastest = changed, spent
    return best
