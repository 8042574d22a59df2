"""Choosing layouts and convolution plans by timing them on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from .conv_graph import WORKSPACE_LIMIT, ConvGraph
from .executable import CudaExecutable
from .runtime import cupy

LAYOUTS = ("nhwc", "nchw")
# A convolution has 60 to 100 candidates; the good ones come early in the heuristics' order.
MOST_PLANS = 32
SECONDS_A_CONVOLUTION = 1.0
FINALISTS = 4
# A plan must win by more than the noise of a short timing.
GAIN = 0.97

Build = Callable[[Mapping[str, str]], CudaExecutable]


def search(build: Build, deterministic: bool, interrupt: Callable[[], None]) -> dict[str, str]:
    """The fastest choices found: for each layout the best plan of every convolution, then the
    layout whose captured step is faster.

    ``build(choices)`` compiles the sections to tune. ``deterministic``: a plan takes the place of
    the heuristics' first only if it gave equal bits twice.
    """
    found: dict[str, str] = {}
    fastest = float("inf")
    for layout in LAYOUTS:
        interrupt()
        trial = build({"layout": layout})
        choices = {"layout": layout} | best_plans(trial, deterministic, interrupt)
        trial.close()
        tuned = build(choices)
        seconds = sum(tuned.step_seconds(name, 5) for name in tuned.graphs)
        tuned.close()
        if seconds < fastest:
            found, fastest = choices, seconds
    return found


def best_plans(
    executable: CudaExecutable, deterministic: bool, interrupt: Callable[[], None]
) -> dict[str, str]:
    """The index of the fastest plan of every convolution, by the name of its choice."""
    workspace = cupy().empty(WORKSPACE_LIMIT, "uint8")
    pointer = int(workspace.data.ptr)
    plans: dict[str, str] = {}
    for name, (graph, output) in executable.convolutions().items():
        interrupt()
        plans[name] = str(_best(graph, pointer, output.array, deterministic))
    return plans


def _best(graph: ConvGraph, workspace: int, output: object, deterministic: bool) -> int:
    deadline = time.perf_counter() + SECONDS_A_CONVOLUTION
    times: dict[int, float] = {}
    for index in range(min(graph.plans(), MOST_PLANS)):
        if times and time.perf_counter() > deadline:
            break
        if graph.build(index):
            times[index] = graph.seconds(index, workspace, 1)
    ranked = sorted(times, key=times.__getitem__)[:FINALISTS]
    again = {index: graph.seconds(index, workspace, 5) for index in ranked}
    first = graph.plan
    again.setdefault(first, graph.seconds(first, workspace, 5))
    for index in sorted(again, key=again.__getitem__):
        if again[index] > GAIN * again[first]:
            break
        if not deterministic or graph.repeats_itself(index, workspace, output):
            return index
    return first
