"""LaunchList: launches in order, on one or more lanes that wait for each other if they must."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....graph.graph import Op
from ....graph.ops import Advance
from ....graph.ops.formulas import Formula
from ....graph.ops.updates import ParameterUpdate
from ...base import BoundCall
from ..libraries.cublas import Cublas
from ..libraries.cublas_lt import CublasLt
from ..libraries.cudnn_library import Cudnn
from ..libraries.kernels import THREADS, Defines, Grid, Kernel
from ..libraries.runtime import cupy, device


@dataclass(frozen=True)
class Lane:
    """A stream with the library handles that work on it."""

    stream: Any
    cublas: Cublas
    cudnn: Cudnn
    cublas_lt: CublasLt


@dataclass(frozen=True)
class Step:
    """One entry of the list: a launch on a lane, and what it is; None if it only waits.

    ``behind``: the launch if it may overlap with the previous one on its lane.
    """

    launch: Callable[[], None]
    lane: int
    call: BoundCall | None = None
    behind: Callable[[], None] | None = None


# What may overlap: launches right behind a launch, or behind what waits for another lane as well.
CHAINS, JOINS = "chains", "joins"


def launches(
    steps: Iterable[Step], joins: bool = False
) -> Iterator[tuple[Step, Callable[[], None]]]:
    """What to call of every step, in order: its launch, overlapping if it can.

    joins: also behind a wait, once the lane has launched anything.
    """
    launched: set[int] = set()
    for step in steps:
        follows = step.behind if step.lane in launched else None
        yield step, follows or step.launch
        if step.call is not None:
            launched.add(step.lane)
        elif not joins:
            launched.discard(step.lane)


class LaunchList:
    """What a section launches; ``lane`` is the one that the next launch goes to, 0 the main one.

    ``overlaps``: CHAINS or JOINS, or "" where every launch waits for the one in front; ``apart``:
    kernels that always do.
    """

    def __init__(
        self, lanes: Sequence[Lane], overlaps: str = "", apart: Collection[str] = ()
    ) -> None:
        self.lanes = lanes
        self.overlaps = overlaps
        self._apart = apart
        self.lane = 0
        self._streams = [lane.stream for lane in lanes]
        self.steps: list[Step] = []
        self._counts = [0] * len(lanes)
        # -1: not even begun, so that the first launch of a lane waits for the main one.
        self._seen = [[-1] * len(lanes) for _ in lanes]
        self._keep: list[Any] = []
        self._scratch: list[Any] = []
        self._early: tuple[int, Step] | None = None

    @property
    def here(self) -> Lane:
        """The lane of the operation that is bound now."""
        return self.lanes[self.lane]

    def keep(self, thing: Any) -> Any:
        """Hold something alive as long as the section."""
        self._keep.append(thing)
        return thing

    def scratch(self, size: int, dtype: str) -> Any:
        """A flat array that every run writes before it reads it."""
        array = self.keep(cupy().empty(size, dtype))
        self._scratch.append(array)
        return array

    def numbers(self, *values: float, dtype: str = "int32") -> Any:
        """A few numbers on the device."""
        return self.keep(cupy().asarray(values, dtype))

    def counter(self) -> Any:
        """A counter of blocks for one launch, see ``come`` in common.cuh."""
        return self.keep(cupy().zeros(1, "uint32"))

    def join(self, others: Iterable[int]) -> None:
        """Let the present lane wait for what the others have been given so far."""
        for other in others:
            if other == self.lane or self._seen[self.lane][other] == self._counts[other]:
                continue
            # A lane that has waited belongs to a capture, even if nothing was launched on it.
            if other and not self._counts[other] and max(self._seen[other]) < 0:
                continue
            self._seen[self.lane][other] = self._counts[other]
            self.steps.append(self._wait(self.lane, other))

    def mark(self) -> Any:
        """An event behind what the present lane has been given so far."""
        event, stream = cupy().cuda.Event(disable_timing=True), self.here.stream
        self.steps.append(Step(lambda: event.record(stream), self.lane))
        return event

    def wait_for_mark(self, event: Any) -> None:
        """Let the present lane wait for a mark of another."""
        stream = self.here.stream
        self.steps.append(Step(lambda: stream.wait_event(event), self.lane))

    def add(
        self,
        op: Op,
        library: str,
        function: str,
        launch: Callable[[], None],
        details: Mapping[str, object] | None = None,
        implementation: str = "",
        behind: Callable[[], None] | None = None,
    ) -> None:
        """Append a launch on the present lane; ``behind``: see Step."""
        shown = {key: str(value) for key, value in (details or {}).items()}
        if self.lane:
            shown["lane"] = str(self.lane)
        self._counts[self.lane] += 1
        call = BoundCall(op, library, function, implementation, shown)
        self.steps.append(Step(launch, self.lane, call, behind))

    def kernel(
        self,
        op: Op,
        kernel: tuple[str, str, bool],
        grid: Grid,
        arguments: Sequence[Any],
        details: Mapping[str, object] | None = None,
        block: Grid = (THREADS,),
        shared: int = 0,
        defines: Defines = (),
        formula: Formula | None = None,
    ) -> None:
        """Append a launch of one of our kernels: (file, name, activations in bfloat16)."""
        found = Kernel(*kernel, defines, formula)
        given = (self.here.stream, grid, block, arguments, shared)
        overlaps = self.overlaps and kernel[1] not in self._apart
        behind = found.overlapping(*given) if overlaps else None
        shown = {**dict(defines), **(vars(formula) if formula else {}), **(details or {})}
        self.add(op, "dnnstack", kernel[1], found.launch(*given), shown, kernel[0], behind)

    def early(self, kernel: tuple[str, str, bool], grid: Grid, arguments: Sequence[Any]) -> None:
        """Say how the launch just added is made beside the update of the step before."""
        if len(self._streams) == 1:
            # A stream alone: no library works on it, so it needs no handles.
            self._streams.append(device().lane(1))
        launch = Kernel(*kernel).launch(self._streams[1], grid, (THREADS,), arguments)
        self._early = (len(self.steps) - 1, Step(launch, 1))

    def repeated(self, times: int) -> list[Step]:
        """The launches of ``times`` steps, one after the other; heads but the first are early.

        Early means: after everything but the updates at a step's end, on another lane than these.
        """
        end = self._updates()
        if times == 1 or self._early is None or end is None:
            return self.steps * times
        head, early = self._early
        rest = [*self.steps[:head], *self.steps[head + 1 :]]
        other = [lane for lane, count in enumerate(self._counts) if lane != 1 and count]
        fork = [self._wait(1, lane) for lane in other]
        middle = [*rest[: end - 1], *fork, early, *rest[end - 1 :], self._wait(0, 1)]
        first = [*self.steps[:end], *fork, early, *self.steps[end:], self._wait(0, 1)]
        return [*first, *middle * (times - 2), *rest]

    def _updates(self) -> int | None:
        """Where the updates of parameters at the end of the step begin, None without any."""
        first = None
        for at in reversed(range(len(self.steps))):
            call = self.steps[at].call
            if call is not None and not isinstance(call.op, (ParameterUpdate, Advance)):
                break
            if call is not None and isinstance(call.op, ParameterUpdate):
                first = at
        return first

    def _wait(self, behind: int, ahead: int) -> Step:
        """Let one lane wait for another."""
        event = cupy().cuda.Event(disable_timing=True)
        last, waiting = self._streams[ahead], self._streams[behind]

        def wait() -> None:
            event.record(last)
            waiting.wait_event(event)

        return Step(wait, behind)
