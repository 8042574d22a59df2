"""Choosing layouts, padding, streams, overlap and convolution plans by timing on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from dataclasses import field
from itertools import zip_longest

from ...common.errors import CudnnError, LibraryError
from ...common.records import dataclass
from ..base import Options
from .binding.ending import BATCH, TAIL
from .binding.launch_list import CHAINS, JOINS, Step
from .executable import CudaExecutable
from .failures import ALLOCATION
from .fused.tensor_conv import POOLED
from .libraries.candidates import Candidates
from .libraries.conv_graph import best_first
from .libraries.conv_plans import WORKSPACE_LIMIT
from .libraries.cublas_lt import Algorithms
from .libraries.overlap import available
from .libraries.runtime import address_of, crowded, cupy
from .operations.step_end import NAME as STEP_END

# What is tried for each precision, the most promising first.
LAYOUTS: dict[str, tuple[dict[str, str], ...]] = {
    "fp32": ({"layout": "nhwc", "pad": "4"}, {"layout": "nchw"}),
    "tf32": ({"layout": "nhwc", "pad": "8"}, {"layout": "nhwc", "pad": "32"}, {"layout": "nchw"}),
    "bf16": ({"layout": "nhwc", "pad": "8"}, {"layout": "nhwc", "pad": "32"}),
}
STREAMS = ("1", "2", "3")
# A convolution has 60 to 100 candidates; the good ones come early in the heuristics' order.
MOST_PLANS = 64
# Seconds that a search takes where nothing else is asked for, and those for each convolution in a
# network of many.
SECONDS, PLAN_SECONDS = 6.0, 0.2
FINALISTS = 4
# The share of the time for plans that kernels of ours may take to be compiled.
PREPARING = 0.4
# A choice must win by more than the noise of a short timing.
GAIN = 0.97
# The same between neighbouring launches: a longer timing, a smaller gain, of few launches.
FINE_GAIN, FINE_REPEATS, FEW_LAUNCHES = 0.995, 20, 48

Build = Callable[[Mapping[str, str]], CudaExecutable]


@dataclass(frozen=True)
class _Trials:
    """Builds trials, and remembers what stood in the way of the search.

    ``refused``: choices that could not be had; ``crowded``: whether another program kept the GPU
    busy, at several moments.
    """

    build: Build
    refused: list[LibraryError] = field(default_factory=list)
    crowded: list[bool] = field(default_factory=list)

    def undisturbed(self) -> bool:
        """Whether no other program held memory that a choice needs, or kept the GPU busy."""
        return not any(self.crowded) and not any(map(_starved, self.refused))

    def look(self) -> None:
        """Look whether another program keeps the GPU busy now."""
        self.crowded.append(crowded())

    def refuses(self, error: LibraryError) -> bool:
        """Whether others may be had: cuDNN has no such plan, or this layout takes more memory than
        is free."""
        passes = isinstance(error, CudnnError) or _starved(error)
        if passes:
            # Its traceback would keep alive what was half built, and the memory of that.
            error.__context__ = None
            self.refused.append(error.with_traceback(None))
        return passes


def _starved(error: LibraryError) -> bool:
    return error.function == ALLOCATION


def search(build: Build, precision: str, options: Options) -> tuple[dict[str, str], bool]:
    """The fastest choices found: for a layout the best plan of every convolution, then the number
    of streams, then whether launches overlap, by the time of the captured step. And whether no
    other program stood in the way, with its work or its memory: else the next search may find
    others.

    ``build(choices)`` compiles the sections to tune. Further layouts are tried while less than half
    of the time is spent; ``options.tune_seconds`` infinity tries every plan in every layout. Raises
    the last LibraryError where no layout can be had.
    """
    trials = _Trials(build)
    found = _search(trials, precision, options)
    trials.look()
    return found, trials.undisturbed()


def _search(build: _Trials, precision: str, options: Options) -> dict[str, str]:
    budget = SECONDS if options.tune_seconds is None else options.tune_seconds
    begin = time.perf_counter()
    found, fastest = dict(LAYOUTS[precision][0]), float("inf")
    for layout in LAYOUTS[precision]:
        options.interrupt()
        build.look()
        spent = time.perf_counter() - begin
        if fastest < float("inf") and spent > budget / 2:
            break
        choices = dict(layout)
        try:
            choices |= _plans(build.build, choices, options, 0.8 * (budget - spent))
        except LibraryError as error:
            if not build.refuses(error):
                raise
            continue
        seconds = _seconds(build, choices)
        if seconds < GAIN * fastest:
            found, fastest = choices, seconds
    if fastest == float("inf") and build.refused:
        raise build.refused[-1]
    for streams in STREAMS[1:]:
        options.interrupt()
        seconds = _seconds(build, found | {"streams": streams})
        if seconds < GAIN * fastest:
            found, fastest = found | {"streams": streams}, seconds
    build.look()
    if available():
        found = _overlap(build, found, options, begin + budget)
    return _ending(build, found, options, begin + budget)


def _ending(
    build: _Trials, found: dict[str, str], options: Options, deadline: float
) -> dict[str, str]:
    """The choices with what the update's launch takes along, where the step gains by it."""
    best, fastest = found, _seconds(build, found, FINE_REPEATS)
    streams = found.get("streams", "1")
    # With fewer launches on it, one stream may do; then less of what is taken, on the better one.
    tried = [(number, f"{TAIL},{BATCH}") for number in dict.fromkeys((streams, "1"))]
    for ending in (BATCH, TAIL):
        tried.append(("", ending))
    for number, ending in tried:
        options.interrupt()
        if not number and time.perf_counter() > deadline:
            break
        choices = best | {"ending": ending} | ({"streams": number} if number else {})
        seconds, steps = _timed(build, choices, FINE_REPEATS)
        if not any(step.call and step.call.function == STEP_END for step in steps):
            break
        if seconds < FINE_GAIN * fastest:
            best, fastest = choices, seconds
    return best


def _overlap(
    build: _Trials, found: dict[str, str], options: Options, deadline: float
) -> dict[str, str]:
    """The choices with those launches overlapping that gain by it.

    All at first, behind joins if the driver can; then, one after the other as long as there is
    time, what is faster when it does not.
    """
    tried: dict[float, tuple[dict[str, str], list[str]]] = {}
    for kind in (JOINS, CHAINS):
        # One stream may be the fastest of those that do not overlap, and two of those that do.
        for streams in dict.fromkeys((found.get("streams", "1"), *STREAMS[:2])):
            options.interrupt()
            choices = found | {"streams": streams, "overlap": kind}
            seconds, steps = _timed(build, choices, FINE_REPEATS)
            functions = (step.call.function for step in steps if step.call and step.behind)
            tried[seconds] = choices, list(dict.fromkeys(functions))
        if min(tried) < float("inf"):
            break
    else:
        return found
    seconds = min(tried)
    overlapping, names = tried[seconds]
    apart: list[str] = []
    for name in names:
        options.interrupt()
        if time.perf_counter() > deadline:
            break
        choices = overlapping | {"apart": ",".join([*apart, name])}
        without = _seconds(build, choices, FINE_REPEATS)
        if without < FINE_GAIN * seconds:
            apart.append(name)
            overlapping, seconds = choices, without
    return overlapping if seconds < FINE_GAIN * _seconds(build, found, FINE_REPEATS) else found


def _seconds(build: _Trials, choices: Mapping[str, str], repeats: int = 5) -> float:
    """The time of one captured step; infinite where a library or the driver refuses a choice."""
    return _timed(build, choices, repeats)[0]


def _timed(build: _Trials, choices: Mapping[str, str], repeats: int) -> tuple[float, list[Step]]:
    """``_seconds``, and the launches; none of a network with so many that one matters little."""
    try:
        with closing(build.build(choices)) as trial:
            seconds = sum(trial.step_seconds(name, repeats) for name in trial.graphs)
            steps = [step for binder in trial.binders() for step in binder.steps]
    except LibraryError as error:
        if not build.refuses(error) and "overlap" not in choices:
            raise
        return float("inf"), []
    return seconds, steps if len(steps) <= FEW_LAUNCHES else []


def _plans(
    build: Build, choices: Mapping[str, str], options: Options, budget: float
) -> dict[str, str]:
    """The fastest plan of every convolution and product, by the name of its choice."""
    try:
        with closing(build(choices)) as trial:
            return _fastest_plans(trial, options, budget)
    except MemoryError as error:
        raise LibraryError("CUDA", ALLOCATION, str(error)) from None


def _fastest_plans(trial: CudaExecutable, options: Options, budget: float) -> dict[str, str]:
    for name in trial.graphs:
        trial.run(name)
    workspace = cupy().empty(WORKSPACE_LIMIT, "uint8")
    pointer, plans = address_of(workspace), dict[str, str]()
    begin, binders = time.perf_counter(), list(trial.binders())
    if options.tune_seconds is None:
        budget = max(budget, PLAN_SECONDS * sum(len(each.convolutions) for each in binders))
    for turn, binder in enumerate(binders):
        # Its share of what is left: sections are as long as each other, or nearly.
        end = time.perf_counter()
        end += (begin + budget - end) / (len(binders) - turn)
        variants = {name: _made(makers) for name, makers in binder.variants.items()}
        # Other processes compile while the device is timed.
        compiling = _begun([each for made in variants.values() for _, each in made])
        products = dict[str, tuple[float, str]]()
        for name, product in binder.products.items():
            options.interrupt()
            products[f"{name}/gemm"] = _algorithm(product)
        _await(compiling, PREPARING * (end - time.perf_counter()))
        left = end - time.perf_counter()
        count = len(binder.convolutions) + sum(map(len, variants.values()))
        for name, (seconds, choice) in products.items():
            options.interrupt()
            if name in binder.tails:
                seconds += binder.tails[name](5)
            for mark, candidates in variants.get(name, ()):
                other, index = _best(candidates, pointer, left / count)
                if other < GAIN * seconds and candidates.verified(index, pointer):
                    choice, seconds = f"{mark}{candidates.choice(index)}", other
            if choice:
                plans[name] = choice
        for name, ways in binder.either.items():
            options.interrupt()
            times = {mark: seconds(5) for mark, seconds in ways.items()}
            plans[name] = min(times, key=times.__getitem__)
        fastest, pooled = dict[str, float](), dict[str, tuple[float, str]]()
        for name, graph in binder.convolutions.items():
            options.interrupt()
            seconds, index = _best(graph, pointer, left / count)
            plans[name] = str(index)
            if name.endswith("/forward"):
                # For sections of other batch sizes, where its number is another.
                plans[f"{name}/plan"] = graph.name(index)
            if name in binder.tails:
                seconds += binder.tails[name](5)
            for mark, candidates in variants.get(name, ()):
                other, other_index = _best(candidates, pointer, left / count)
                choice = f"{mark}{candidates.choice(other_index)}"
                if mark.startswith(POOLED):
                    pooled[name] = min(pooled.get(name, (other, choice)), (other, choice))
                elif other < GAIN * seconds:
                    plans[name], seconds = choice, other
            fastest[name] = seconds
        for each in binder.together:
            if each.names and all(name in pooled for name in each.names):
                apart = sum(fastest[name] for name in each.names) + each.spared(5)
                if sum(pooled[name][0] for name in each.names) < GAIN * apart:
                    plans |= {name: pooled[name][1] for name in each.names}
    return plans


def _made(
    makers: Sequence[tuple[str, Callable[[], Candidates]]],
) -> list[tuple[str, Candidates]]:
    """The other ways to compute a convolution, as far as they can be had."""
    made: list[tuple[str, Candidates]] = []
    for mark, make in makers:
        with suppress(CudnnError):
            candidates = make()
            if candidates.plans():
                made.append((mark, candidates))
    return made


def _begun(every: Sequence[Candidates]) -> list[Future[bytes]]:
    """Let kernels of ours be compiled; those that cannot be are left to ``build``."""
    # The most promising of each before others: not all may be ready in time.
    rows = zip_longest(*(each.preparations() for each in every))
    coming: list[Future[bytes]] = []
    for work in (work for row in rows for work in row if work is not None):
        with suppress(Exception):  # the compiler, and CuPy, raise types of their own
            found = work()
            if found is not None:
                coming.append(found)
    return coming


def _await(compiling: Sequence[Future[bytes]], seconds: float) -> None:
    """Wait so long for what is compiled; what has not begun then is left to ``build``."""
    wait(compiling, None if seconds == float("inf") else max(0.0, seconds))
    for each in compiling:
        each.cancel()


def _algorithm(product: Algorithms) -> tuple[float, str]:
    """Seconds of a product's fastest algorithm that repeats, and its number; "" for the one that
    cuBLAS would take anyway. Nothing is faster than one of which there is no time."""
    times = {index: product.seconds(index, 5) for index in range(product.count())}
    for index in best_first(times)[:FINALISTS]:
        if times[index] > GAIN * times[0]:
            break
        if product.verified(index):
            return times[index], str(index)
    return times.get(0, 0.0), ""


def _best(graph: Candidates, workspace: int, budget: float) -> tuple[float, int]:
    """Seconds and index of the fastest candidate that keeps its promises."""
    deadline = time.perf_counter() + budget
    times: dict[int, float] = {}
    names: set[str] = set()
    for index in graph.order()[: None if budget == float("inf") else MOST_PLANS]:
        if times and time.perf_counter() > deadline:
            break
        if graph.build(index) and graph.name(index) not in names:
            names.add(graph.name(index))
            times[index] = graph.seconds(index, workspace, 1)
    again = {index: graph.seconds(index, workspace, 5) for index in best_first(times)[:FINALISTS]}
    for index in best_first(again):
        if again[index] < float("inf") and graph.verified(index, workspace):
            return again[index], index
    if graph.plan < 0:
        graph.choose()
    return graph.seconds(graph.plan, workspace, 5), graph.plan
