"""The Backend protocol: compile sections of a graph into an Executable, then run them.

backend = open_backend("cpu", threads=2)
executable = backend.compile({"train": graph}, Options())
executable.write(parameter, values)
executable.run("train")
loss = executable.read(graph["loss"])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from ..graph.graph import Graph, Op, Tensor
from .tuning import Tuning

Precision = Literal["auto", "fp32", "fp64", "tf32", "bf16"]
Residency = Literal["auto", "device", "stream"]
Array = NDArray[Any]


@dataclass(frozen=True)
class Options:
    """How to compile. ``precision`` auto is the backend's default; fp64 is for the reference alone.

    ``tuning``: choices to apply as they are, from a checkpoint or another executable. ``tune``:
    whether choices that nobody gave may be found by timing; else the backend's defaults are taken.
    ``tune_seconds``: about how long that may take; None is the backend's own short budget, infinity
    a search that leaves out nothing. ``residency``: where the CUDA backend keeps data sets; auto is
    on the device where they fit. ``share_memory``: whether a CPU's activations take the memory of
    those that nobody needs any more; these cannot be read then. ``interrupt`` is called now and
    then while compiling takes its time; what it raises ends it.
    """

    precision: Precision = "auto"
    fusion: bool = True
    deterministic: bool = True
    tuning: Tuning | None = None
    tune: bool = True
    tune_seconds: float | None = None
    residency: Residency = "auto"
    share_memory: bool = False
    interrupt: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class BoundCall:
    """What one step of a compiled section became: the library call behind an operation.

    ``arguments`` are what the call was given: geometry, shapes, layouts. ``op`` is the operation it
    works for; a call that only moves data between layouts works for the one that needs it.
    """

    op: Op
    library: str
    function: str
    implementation: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What this machine reached: GFLOP/s of a large gemm, GB/s of a large copy."""

    gflops: float
    gbytes: float


class Executable(Protocol):
    """Compiled sections that share parameters, state and data sets; owns all their memory.

    Arrays that enter or leave are canonical: NCHW, OIHW, (units, inputs), unpadded, fp32 (or the
    tensor's integer type), C-contiguous copies; only ``write`` of a "data" tensor keeps a
    reference, so the caller must not change that array.
    """

    @property
    def tuning(self) -> Tuning:
        """Everything that was decided by timing; compile with it again for equal bits."""
        ...

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """The sections as they are run: after rewrites."""
        ...

    @property
    def notices(self) -> Sequence[str]:
        """What the user should know about compiling, such as a tuning that could not be applied."""
        ...

    def run(self, section: str, steps: int = 1, wait: bool = True) -> None:
        """Run a section so many times. Raises LibraryError with the failing call.

        Without ``wait`` it may return before the device is done; ``read`` and ``write`` then wait,
        and raise what went wrong.
        """
        ...

    def write(self, tensor: Tensor, array: Array) -> None:
        """Set a tensor that comes from outside: input, data, parameter, state, scalar."""
        ...

    def read(self, tensor: Tensor) -> Array:
        """A copy of a tensor's value. Raises KeyError for one that is not held here."""
        ...

    def calls(self, section: str) -> Sequence[BoundCall]:
        """The section's calls in order."""
        ...

    def measure(self, section: str, repeats: int) -> list[float]:
        """Median seconds of every call of the section over so many runs, in the order of calls.

        Parameters and state are afterwards what they were before.
        """
        ...

    def poison(self) -> None:
        """Overwrite what no run may rely on with bytes of 0xFF, which are NaN in every float type.

        That is all but constants, inputs, parameters, state, data sets, and copies of these that
        are still valid. Results are lost too. A run that reads what it has not written shows.
        """
        ...

    def close(self) -> None:
        """Free everything; the executable is unusable afterwards."""
        ...


class Backend(Protocol):
    """A device with its libraries."""

    @property
    def name(self) -> str: ...

    @property
    def waiting_threads(self) -> int:
        """Threads of this machine that wait for each other in every call; 0 where a device works.

        Another program that keeps one of their cores busy holds up all of them.
        """
        ...

    @property
    def rewrites(self) -> Sequence[str]:
        """The rewrites whose result this backend can run."""
        ...

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Executable:
        """Pick engines and layouts, allocate all memory, bind every call.

        Raises ShapeError or LibraryError for an operation that cannot be bound.
        """
        ...

    def precision(self, wanted: Precision) -> Precision:
        """What is computed in where ``wanted`` is asked for: ``auto`` has a meaning here.

        Raises BackendUnavailableError for one that this device has not.
        """
        ...

    def limits(self) -> Limits:
        """Measure the machine: takes about a second."""
        ...

    def versions(self) -> Mapping[str, str]:
        """Library versions, instruction set, threads: what equal bits depend on."""
        ...
