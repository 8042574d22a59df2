"""The fastest plan of every convolution and product by themselves, and what comes near to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from functools import partial
from itertools import zip_longest

from ...common.errors import CudnnError, LibraryError
from ...common.records import dataclass
from ..base import Options
from .binding.choices import AtEnd, Through, parsed
from .executable import CudaExecutable
from .failures import failed
from .libraries.candidates import Candidates
from .libraries.conv_graph import best_first
from .libraries.conv_plans import WORKSPACE_LIMIT
from .libraries.cublas_lt import Algorithms
from .libraries.driver import ALLOCATION
from .libraries.runtime import address_of, cuda_api, device, device_errors

# A convolution has 60 to 100 candidates; the good ones come early in the heuristics' order.
MOST_PLANS = 64
# Seconds for each convolution in a network of many.
PLAN_SECONDS = 0.2
FINALISTS = 4
# The share of the time for plans that kernels of ours may take to be compiled.
PREPARING = 0.4
# A choice must win by more than the noise of a short timing.
GAIN = 0.97
# Launches of a network in which a single one matters.
FEW_LAUNCHES = 48
# What is so many times slower alone may be faster among neighbours; and how many are kept.
RIVAL, MOST_RIVALS = 1.35, 3
# Beside these, products that the launch of the update may take along.
MOST_AT_ONCE = 2

Build = Callable[[Mapping[str, str]], CudaExecutable]
# By the name of a choice: others that are nearly as fast alone, the fastest first.
Rivals = dict[str, list[str]]


@dataclass(frozen=True)
class Rank:
    """A choice with its seconds; ``verified`` tells whether it keeps its promises."""

    seconds: float
    choice: str
    verified: Callable[[], bool] = lambda: True


def timed_plans(
    build: Build,
    choices: Mapping[str, str],
    options: Options,
    budget: float,
    rivals: Rivals | None = None,
) -> dict[str, str]:
    """The fastest plan of every convolution and product, by the name of its choice; ``rivals``
    gets those of a network of few launches."""
    try:
        # What is allocated and set on the trial's stream is there when it is used.
        with closing(build(choices)) as trial, device().stream:
            if rivals is not None and launched(trial) > FEW_LAUNCHES:
                rivals = None
            return _of_trial(trial, options, budget, rivals)
    except MemoryError as error:
        raise LibraryError("CUDA", ALLOCATION, str(error)) from None
    except device_errors() as error:
        raise failed("CUDA", "cudaStreamSynchronize", error, {}) from None


def launched(trial: CudaExecutable) -> int:
    """The launches of its longest section."""
    return max(sum(step.call is not None for step in each.steps) for each in trial.binders())


def _of_trial(
    trial: CudaExecutable, options: Options, budget: float, rivals: Rivals | None
) -> dict[str, str]:
    for name in trial.graphs:
        trial.run(name)
    workspace = cuda_api().empty(WORKSPACE_LIMIT, "uint8")
    pointer, plans = address_of(workspace), dict[str, str]()
    begin, binders = time.perf_counter(), list(trial.binders())
    if options.tune_seconds is None:
        budget = max(budget, PLAN_SECONDS * sum(len(each.convolutions) for each in binders))
    for turn, binder in enumerate(binders):
        # Its share of what is left: sections are as long as each other, or nearly.
        end = time.perf_counter()
        end += (begin + budget - end) / (len(binders) - turn)
        variants = {name: _made(makers) for name, makers in binder.variants.items()}
        moving = {} if rivals is None else binder.at_once
        at_once = {name: _made([(AtEnd.mark, make)]) for name, make in moving.items()}
        # Other processes compile while the device is timed.
        every = (*variants.values(), *at_once.values())
        compiling = begun([each for made in every for _, each in made])
        products = dict[str, tuple[float, str]]()
        for name, product in binder.products.items():
            options.interrupt()
            products[f"{name}/gemm"] = _algorithm(product)
        _await(compiling, PREPARING * (end - time.perf_counter()))
        left = end - time.perf_counter()
        count = len(binder.convolutions) + sum(map(len, every))
        for name, (seconds, choice) in products.items():
            options.interrupt()
            if name in binder.tails:
                seconds += binder.tails[name](5)
            ranked = [Rank(seconds, choice)]
            for mark, candidates in variants.get(name, ()):
                other, index = _rival(candidates, pointer, left / count, ranked, mark)
                if other < GAIN * seconds:
                    choice, seconds = f"{mark}{candidates.choice(index)}", other
            if choice:
                plans[name] = choice
            _add_rivals(rivals, name, choice, seconds, ranked)
        for name, made in at_once.items():
            options.interrupt()
            for mark, candidates in made:
                ranked = list[Rank]()
                _rival(candidates, pointer, left / count, ranked, mark)
                _add_at_once(rivals, name, ranked)
        for name, ways in binder.either.items():
            options.interrupt()
            times = {mark: seconds(5) for mark, seconds in ways.items()}
            plans[name] = min(times, key=times.__getitem__)
        fastest, pooled = dict[str, float](), dict[str, tuple[float, str]]()
        by_name = dict[str, list[Rank]]()
        for name, graph in binder.convolutions.items():
            options.interrupt()
            ranked = list[Rank]()
            seconds, index = best(graph, pointer, left / count, ranked)
            plans[name] = str(index)
            if name.endswith("/forward"):
                # For sections of other batch sizes, where its number is another.
                plans[f"{name}/plan"] = graph.name(index)
            if name in binder.tails:
                seconds += binder.tails[name](5)
            spared = binder.spared[name](5) if name in binder.spared else 0.0
            seconds += spared
            for mark, candidates in variants.get(name, ()):
                other, other_index = _rival(candidates, pointer, left / count, ranked, mark)
                if not candidates.sums:
                    other += spared
                choice = f"{mark}{candidates.choice(other_index)}"
                if isinstance(parsed(name, choice), Through):
                    pooled[name] = min(pooled.get(name, (other, choice)), (other, choice))
                elif other < GAIN * seconds:
                    plans[name], seconds = choice, other
            fastest[name], by_name[name] = seconds, ranked
        for each in binder.together:
            if each.names and all(name in pooled for name in each.names):
                apart = sum(fastest[name] for name in each.names) + each.spared(5)
                if sum(pooled[name][0] for name in each.names) < GAIN * apart:
                    plans |= {name: pooled[name][1] for name in each.names}
                    fastest |= {name: pooled[name][0] for name in each.names}
        for name, ranked in by_name.items():
            _add_rivals(rivals, name, plans[name], fastest[name], ranked)
    return plans


def _add_rivals(
    rivals: Rivals | None, name: str, taken: str, seconds: float, ranked: Sequence[Rank]
) -> None:
    """Of a choice those nearly as fast as what is taken, which take as much of their neighbours."""
    if rivals is None:
        return

    def through(choice: str) -> bool:
        return bool(choice) and isinstance(parsed(name, choice), Through)

    found = rivals.setdefault(name, [])
    for each in sorted(ranked, key=lambda each: each.seconds):
        alike = through(each.choice) == through(taken)
        near = each.choice != taken and each.seconds < RIVAL * seconds
        if len(found) < MOST_RIVALS and alike and near and each.verified():
            found.append(each.choice)


def _add_at_once(rivals: Rivals | None, name: str, ranked: Sequence[Rank]) -> None:
    """Products with an update, in front of what computes the gradient alone: what else they do is
    spared elsewhere, so their own times say nothing."""
    timed = sorted(ranked, key=lambda each: each.seconds)
    right = [each.choice for each in timed if each.seconds < float("inf") and each.verified()]
    if rivals is not None:
        rivals[name] = [*right[:MOST_AT_ONCE], *rivals.get(name, ())]


def _made(makers: Sequence[tuple[str, Callable[[], Candidates]]]) -> list[tuple[str, Candidates]]:
    """The other ways to compute a convolution, as far as they can be had."""
    made: list[tuple[str, Candidates]] = []
    for mark, make in makers:
        with suppress(CudnnError):
            candidates = make()
            if candidates.plans():
                made.append((mark, candidates))
    return made


def begun(every: Sequence[Candidates]) -> list[Future[bytes]]:
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


def best(
    graph: Candidates,
    workspace: int,
    budget: float,
    ranked: list[Rank] | None = None,
    mark: str = "",
) -> tuple[float, int]:
    """Seconds and index of the fastest candidate that keeps its promises; ``ranked`` gets all that
    were timed again, named as choices that begin with ``mark``.

    Where none does, the seconds are infinite. Raises CudnnError where there is none at all.
    """
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
    if ranked is not None:
        for index, seconds in again.items():
            verified = partial(graph.verified, index, workspace)
            ranked.append(Rank(seconds, f"{mark}{graph.choice(index)}", verified))
    for index in best_first(again):
        if again[index] < float("inf") and graph.verified(index, workspace):
            return again[index], index
    if graph.plan < 0:
        graph.choose()
    seconds = graph.seconds(graph.plan, workspace, 5)
    right = seconds < float("inf") and graph.verified(graph.plan, workspace)
    return (seconds if right else float("inf")), graph.plan


def _rival(
    graph: Candidates, workspace: int, budget: float, ranked: list[Rank], mark: str
) -> tuple[float, int]:
    """``best`` of what need not be had: where there is none, the seconds are infinite."""
    try:
        return best(graph, workspace, budget, ranked, mark)
    except CudnnError:
        return float("inf"), 0
