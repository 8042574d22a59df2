"""LaunchList: launches in order, on one or more lanes that wait for each other where they must."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...graph import Op
from ..base import BoundCall
from .cublas import Cublas
from .cublas_lt import CublasLt
from .cudnn_library import Cudnn
from .kernels import THREADS, Defines, Grid, Kernel
from .runtime import cupy


@dataclass(frozen=True)
class Lane:
    """A stream with the library handles that work on it."""

    stream: Any
    cublas: Cublas
    cudnn: Cudnn
    cublas_lt: CublasLt


@dataclass(frozen=True)
class Step:
    """One entry of the list: a launch on a lane, and what it is; None where it only waits."""

    launch: Callable[[], None]
    lane: int
    call: BoundCall | None = None


class LaunchList:
    """What a section launches; ``lane`` is the one that the next launch goes to, 0 the main one."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.lanes = lanes
        self.lane = 0
        self.steps: list[Step] = []
        self._counts = [0] * len(lanes)
        # -1: not even begun, so that the first launch of a lane waits for the main one.
        self._seen = [[-1] * len(lanes) for _ in lanes]
        self._keep: list[Any] = []

    @property
    def here(self) -> Lane:
        """The lane of the operation that is bound now."""
        return self.lanes[self.lane]

    def keep(self, thing: Any) -> Any:
        """Hold something alive as long as the section."""
        self._keep.append(thing)
        return thing

    def numbers(self, *values: float, dtype: str = "int32") -> Any:
        """A few numbers on the device."""
        return self.keep(cupy().asarray(values, dtype))

    def join(self, others: Iterable[int]) -> None:
        """Let the present lane wait for what the others have been given so far."""
        for other in others:
            if other == self.lane or self._seen[self.lane][other] == self._counts[other]:
                continue
            if other and not self._counts[other]:
                continue
            self._seen[self.lane][other] = self._counts[other]
            event = cupy().cuda.Event(disable_timing=True)
            ahead, behind = self.lanes[other].stream, self.here.stream

            def wait(event: Any = event, ahead: Any = ahead, behind: Any = behind) -> None:
                event.record(ahead)
                behind.wait_event(event)

            self.steps.append(Step(wait, self.lane))

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
    ) -> None:
        """Append a launch on the present lane."""
        shown = {key: str(value) for key, value in (details or {}).items()}
        if self.lane:
            shown["lane"] = str(self.lane)
        self._counts[self.lane] += 1
        call = BoundCall(op, library, function, implementation, shown)
        self.steps.append(Step(launch, self.lane, call))

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
    ) -> None:
        """Append a launch of one of our kernels: (file, name, activations in bfloat16)."""
        found = Kernel(*kernel, defines)
        launch = found.launch(self.here.stream, grid, block, arguments, shared)
        shown = {**dict(defines), **(details or {})}
        self.add(op, "dnnstack", kernel[1], launch, shown, kernel[0])
