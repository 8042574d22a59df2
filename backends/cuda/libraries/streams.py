"""Streams, events, graphs and kernels of CUDA, by CuPy's binding of its runtime and our own of its
driver.

CuPy's objects would do, but importing CuPy takes a good part of a start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from cupy_backends.cuda.api import runtime

from ....common.native import Owned
from . import driver
from .arguments import Arguments

Self = TypeVar("Self", bound="Stream")
_present = threading.local()


def present_stream() -> int:
    """The stream whose ``with`` block this thread is in; 0, CUDA's default one, in none."""
    inside: list[int] = getattr(_present, "streams", [])
    return inside[-1] if inside else 0


def _freed(destroy: Callable[[int], object], handle: int) -> None:
    # After an error of the device every call fails; it has been reported by then.
    with suppress(runtime.CUDARuntimeError, driver.DriverError):
        destroy(handle)


class _Held:
    """What is destroyed with its owner; ``ptr``: its handle."""

    def __init__(self, handle: int, destroy: Callable[[int], object]) -> None:
        self.ptr = handle
        self._owned = Owned(handle, partial(_freed, destroy))


class Event(_Held):
    """A place in a stream; ``timing``: whether seconds between two of them can be asked for."""

    def __init__(self, timing: bool = False) -> None:
        flags = runtime.eventDefault if timing else runtime.eventDisableTiming
        super().__init__(runtime.eventCreateWithFlags(flags), runtime.eventDestroy)

    def record(self, stream: Stream) -> None:
        """Take the place behind what the stream was given so far."""
        runtime.eventRecord(self.ptr, stream.ptr)

    def synchronize(self) -> None:
        """Wait until the device has come there."""
        runtime.eventSynchronize(self.ptr)

    def seconds_until(self, later: Event) -> float:
        """Device seconds from here to another one behind it, both of which have been reached."""
        return float(runtime.eventElapsedTime(self.ptr, later.ptr)) / 1e3


class Graph(_Held):
    """Launches that were captured, to be made again at once."""

    def __init__(self, captured: int) -> None:
        try:
            made = runtime.graphInstantiate(captured)
        finally:
            runtime.graphDestroy(captured)
        super().__init__(made, runtime.graphExecDestroy)

    def launch(self, stream: Stream) -> None:
        runtime.graphLaunch(self.ptr, stream.ptr)


class Stream(_Held):
    """A stream that does not wait for CUDA's default one.

    Inside its ``with`` block device arrays are written, read and copied on it, and the thread has
    the context of the device.
    """

    def __init__(self) -> None:
        made = runtime.streamCreateWithFlags(runtime.streamNonBlocking)
        super().__init__(made, runtime.streamDestroy)

    def __enter__(self: Self) -> Self:
        use_device()
        if not hasattr(_present, "streams"):
            _present.streams = []
        _present.streams.append(self.ptr)
        return self

    def __exit__(self, *_: object) -> None:
        _present.streams.pop()

    def __cuda_stream__(self) -> tuple[int, int]:
        """The protocol by which CuPy takes it; version 0."""
        return 0, self.ptr

    def synchronize(self) -> None:
        """Wait until the device has done what the stream was given."""
        runtime.streamSynchronize(self.ptr)

    def wait_event(self, event: Event) -> None:
        """Let what follows wait for a place in another stream."""
        runtime.streamWaitEvent(self.ptr, event.ptr)

    def begin_capture(self) -> None:
        """Let launches become part of a graph; other threads may call what they like."""
        runtime.streamBeginCapture(self.ptr, runtime.streamCaptureModeRelaxed)

    def end_capture(self) -> Graph:
        return Graph(runtime.streamEndCapture(self.ptr))


def use_device() -> None:
    """Give this thread the context of the first GPU, which calls of the driver need."""
    runtime.setDevice(0)


class Module(_Held):
    """Compiled code on the device."""

    def __init__(self, code: bytes) -> None:
        use_device()
        super().__init__(driver.loaded(code), driver.unload)

    def function(self, name: str) -> Function:
        return Function(self, name)


class Function:
    """A kernel of a module; ``ptr``: its CUfunction."""

    def __init__(self, module: Module, name: str) -> None:
        self._module = module
        self.ptr = driver.function(module.ptr, name)

    def launch(
        self,
        stream: Any,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: Sequence[Any],
        shared: int,
    ) -> Callable[[], None]:
        """A function that launches it; arguments and ``shared``: see Kernel."""
        held, sizes = Arguments(arguments), (*_three(grid), *_three(block))

        def run() -> None:
            driver.call("cuLaunchKernel", self.ptr, *sizes, shared, stream.ptr, held.pointers, None)

        return run


def _three(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes, *[1] * (3 - len(sizes)))
