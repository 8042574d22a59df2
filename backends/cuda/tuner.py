"""Choosing layouts, padding, streams, overlap and convolution plans by timing on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import field
from typing import NamedTuple

from ...common.errors import CudnnError, LibraryError
from ...common.records import dataclass
from ..base import BoundCall, Options
from .binding import at_once
from .binding.ending import BATCH, TAIL
from .binding.launches import CHAINS, JOINS
from .executable import CudaExecutable
from .libraries.driver import ALLOCATION
from .libraries.overlap import available
from .libraries.timing import crowded
from .operations.sgd import STEP_END
from .timed_plans import FEW_LAUNCHES, GAIN, Rivals, launched, timed_plans

# What is tried for each precision, the most promising first.
LAYOUTS: dict[str, tuple[dict[str, str], ...]] = {
    "fp32": ({"layout": "nhwc", "pad": "4"}, {"layout": "nchw"}),
    "tf32": ({"layout": "nhwc", "pad": "8"}, {"layout": "nhwc", "pad": "32"}, {"layout": "nchw"}),
    "bf16": ({"layout": "nhwc", "pad": "8"}, {"layout": "nhwc", "pad": "32"}),
}
STREAMS = ("1", "2", "3")
# Seconds that a search takes where nothing else is asked for.
SECONDS = 6.0
# Between neighbouring launches: a longer timing, a smaller gain, of few launches.
FINE_GAIN, FINE_REPEATS = 0.995, 20
# Kernels of large blocks, which leave what takes its place behind them little room.
LARGE = ("tensor_conv", "tensor_filter", "tensor_first_pool", "tensor_first_pool_backward")
# Of the seconds of a search, those that trials of whole steps with what is nearly as fast may take
# beyond them; as many again where few launches are tried.
LATER = 0.5
# What is so many times slower than the fastest with and without overlap is not looked into further.
NEAR = 1.1

Build = Callable[[Mapping[str, str]], CudaExecutable]
# Choices, with the seconds of a step.
_Way = tuple[dict[str, str], float]


@dataclass(frozen=True)
class _Trials:
    """Builds trials, and remembers what stood in the way of the search.

    ``refused``: choices that could not be had; ``crowded``: whether another program kept the GPU
    busy, at several moments; ``launches``: of the trials that were timed, by their choices.
    """

    build: Build
    options: Options
    refused: list[LibraryError] = field(default_factory=list)
    crowded: list[bool] = field(default_factory=list)
    launches: dict[frozenset[tuple[str, str]], int] = field(default_factory=dict)

    def many(self, choices: Mapping[str, str]) -> bool:
        """Whether a trial with these choices had so many launches that one matters little."""
        return self.launches.get(frozenset(choices.items()), 0) > FEW_LAUNCHES

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
    trials = _Trials(build, options)
    found = _search(trials, precision)
    trials.look()
    return found, trials.undisturbed()


def _search(build: _Trials, precision: str) -> dict[str, str]:
    options = build.options
    budget = SECONDS if options.tune_seconds is None else options.tune_seconds
    begin = time.perf_counter()
    found, fastest = dict(LAYOUTS[precision][0]), float("inf")
    rivals = Rivals()
    for layout in LAYOUTS[precision]:
        options.interrupt()
        build.look()
        spent = time.perf_counter() - begin
        if fastest < float("inf") and spent > budget / 2:
            break
        choices, others = dict(layout), Rivals()
        try:
            choices |= timed_plans(build.build, choices, options, 0.8 * (budget - spent), others)
        except LibraryError as error:
            if not build.refuses(error):
                raise
            continue
        seconds = _seconds(build, choices)
        if seconds < GAIN * fastest:
            found, fastest, rivals = choices, seconds, others
    if fastest == float("inf") and build.refused:
        raise build.refused[-1]
    for streams in STREAMS[1:]:
        options.interrupt()
        seconds = _seconds(build, found | {"streams": streams})
        if seconds < GAIN * fastest:
            found, fastest = found | {"streams": streams}, seconds
    build.look()
    # What the update takes along may decide whether overlapping pays.
    ways = [(found, _seconds(build, found, FINE_REPEATS))]
    if available():
        ways += _overlap(build, found, begin + budget)
    ways = [_ending(build, way, begin + budget) for way in ways]
    # Which of them wins in the end depends on what each then finds beside its other launches.
    near = [way for way in ways if way[1] <= NEAR * min(seconds for _, seconds in ways)]
    later = LATER * budget / len(near)
    refined = [_refined(build, way, rivals, begin + budget, later) for way, _ in near]
    # The first, which overlaps nothing, where another wins by no more than noise.
    found, fastest = refined[0]
    for choices, seconds in refined[1:]:
        if seconds < FINE_GAIN * fastest:
            found, fastest = choices, seconds
    return found


def _refined(
    build: _Trials, found: dict[str, str], rivals: Rivals, deadline: float, later: float
) -> _Way:
    """The choices with what is nearly as fast alone and gains in the whole step, and its seconds;
    twice ``later`` beyond the deadline at most."""
    start = found, _seconds(build, found, FINE_REPEATS)
    # A host that was slow to compile may have used up the seconds already.
    deadline = max(deadline, time.perf_counter()) + later
    best = _among(build, start, rivals, deadline)
    deadline = max(deadline, time.perf_counter()) + later
    return _united(build, best, rivals, deadline)


def _among(build: _Trials, way: _Way, rivals: Rivals, deadline: float) -> _Way:
    """The choices with those rivals with which the whole step is faster, and its seconds: beside
    other launches, what overlaps or leaves room may win. The nearest of every choice first."""
    found, fastest = way
    for turn in range(max(map(len, rivals.values()), default=0)):
        for name, others in rivals.items():
            build.options.interrupt()
            if turn >= len(others) or found.get(name) == others[turn]:
                continue
            if not at_once.fits(name, others[turn], found):
                continue
            if time.perf_counter() > deadline:
                return found, fastest
            choices = found | {name: others[turn]}
            seconds = _seconds(build, choices, FINE_REPEATS)
            if seconds < FINE_GAIN * fastest:
                found, fastest = choices, seconds
    return found, fastest


def _united(build: _Trials, way: _Way, rivals: Rivals, deadline: float) -> _Way:
    """The choices with as few launches as may be, where the step gains by it, and its seconds.

    A product in the update's launch, beside all that this takes along, on one stream. Each of these
    alone may lose, so what is nearly as fast is looked through once more from there.
    """
    found, fastest = way
    for name, others in rivals.items():
        product = next((each for each in others if at_once.is_at_end(name, each)), None)
        if product is None:
            continue
        starts: list[_Way] = []
        for ending in (f"{TAIL},{BATCH}", BATCH):
            build.options.interrupt()
            if time.perf_counter() > deadline:
                break
            start = at_once.without_ends(found, name) | {name: product, "ending": ending}
            start |= {"streams": "1"}
            starts.append((start, _seconds(build, start, FINE_REPEATS)))
        best = min(starts, key=lambda each: each[1], default=({}, float("inf")))
        if best[1] < float("inf"):
            choices, seconds = _among(build, best, rivals, deadline)
            if seconds < FINE_GAIN * fastest:
                found, fastest = choices, seconds
    return found, fastest


def _ending(build: _Trials, way: _Way, deadline: float) -> _Way:
    """The choices with what the update's launch takes along, where the step gains by it."""
    best, fastest = way
    if build.many(best):
        return way
    streams = best.get("streams", "1")
    # With fewer launches on it, one stream may do; then less of what is taken, on the better one.
    tried = [(number, f"{TAIL},{BATCH}") for number in dict.fromkeys((streams, "1"))]
    tried += [("", BATCH), ("", TAIL)]
    for number, ending in tried:
        build.options.interrupt()
        if not number and time.perf_counter() > deadline:
            break
        choices = best | {"ending": ending} | ({"streams": number} if number else {})
        seconds, ran = _timed(build, choices, FINE_REPEATS)
        if not any(each.call.function == STEP_END for each in ran):
            break
        if seconds < FINE_GAIN * fastest:
            best, fastest = choices, seconds
    return best, fastest


def _overlap(build: _Trials, found: dict[str, str], deadline: float) -> list[_Way]:
    """The choices with those launches overlapping that gain by it, and the seconds of a step; none
    where no launch can overlap.

    All at first, behind joins if the driver can, with kernels of large blocks that let none overlap
    with them and without; then, one after the other as long as there is time, what is faster when
    it does not overlap with the one in front, or when none does with it.
    """
    tried: dict[float, tuple[dict[str, str], list[str]]] = {}

    def tries(choices: dict[str, str]) -> None:
        build.options.interrupt()
        seconds, ran = _timed(build, choices, FINE_REPEATS)
        functions = (each.call.function for each in ran if each.may_overlap)
        tried[seconds] = choices, list(dict.fromkeys(functions))

    # One stream may be the fastest of those that do not overlap, and two of those that do.
    numbers = list(dict.fromkeys((found.get("streams", "1"), *STREAMS)))
    for kind in (JOINS, CHAINS):
        for streams in numbers:
            tries(found | {"streams": streams, "overlap": kind})
        if min(tried) < float("inf"):
            large = ",".join(name for name in tried[min(tried)][1] if name in LARGE)
            for streams in numbers if large else ():
                tries(found | {"streams": streams, "overlap": kind, "quiet": large})
            break
    else:
        return []
    seconds = min(tried)
    best, names = tried[seconds]
    for key, name in [(key, name) for key in ("apart", "quiet") for name in names]:
        build.options.interrupt()
        if time.perf_counter() > deadline:
            break
        listed = list(filter(None, best.get(key, "").split(",")))
        changed = [each for each in listed if each != name] if name in listed else [*listed, name]
        choices = best | {key: ",".join(changed)}
        without = _seconds(build, choices, FINE_REPEATS)
        if without < FINE_GAIN * seconds:
            best, seconds = choices, without
    return [(best, seconds)]


def _seconds(build: _Trials, choices: Mapping[str, str], repeats: int = 5) -> float:
    """The time of one captured step; infinite where a library or the driver refuses a choice."""
    return _timed(build, choices, repeats)[0]


class _Launched(NamedTuple):
    """A launch of a trial, without what it held of the device's memory."""

    call: BoundCall
    may_overlap: bool


def _timed(
    build: _Trials, choices: Mapping[str, str], repeats: int
) -> tuple[float, list[_Launched]]:
    """``_seconds``, and the launches; none of a network with so many that one matters little."""
    try:
        with closing(build.build(choices)) as trial:
            seconds = sum(trial.step_seconds(name, repeats) for name in trial.graphs)
            steps = [step for binder in trial.binders() for step in binder.steps]
            ran = [_Launched(s.call, s.behind is not None) for s in steps if s.call is not None]
            build.launches[frozenset(choices.items())] = launched(trial)
    except LibraryError as error:
        if not build.refuses(error) and "overlap" not in choices:
            raise
        return float("inf"), []
    return seconds, [] if build.many(choices) else ran
