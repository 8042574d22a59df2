"""The Backend protocol: compile sections of a graph into an Executable, then run them.

backend = open_backend("cpu", threads=2)
executable = backend.compile({"train": graph}, Options())
executable.write(parameter, values)
executable.run("train")
loss = executable.read(graph["loss"])
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from ..common.errors import ShapeError
from ..common.records import dataclass
from ..graph.graph import Graph, Op, Tensor
from ..graph.ops import Conv2d
from ..graph.rewrites import Rewrite
from .tuning import Tuning

Precision = Literal["auto", "fp32", "fp64", "tf32", "bf16"]
Residency = Literal["auto", "device", "stream"]
Calls = Literal["best", "lecture"]
Array = NDArray[Any]


@dataclass(frozen=True)
class Options:
    """How to compile. ``precision`` auto is the backend's default; only the reference has fp64.

    ``tuning``: choices to apply as they are, from a checkpoint or another executable. ``tune``:
    whether other choices may be found by timing; if not, the backend's defaults are used.
    ``tune_seconds``: about how long that may take; None is the backend's own short budget, infinity
    an exhaustive search. ``residency``: where the CUDA backend keeps data sets; auto is on the
    device if they fit. ``calls``: with lecture CUDA makes those of cuda/lecture.py, in fp32 without
    fusion, and residency auto is stream. ``share_memory``: whether activations take the
    memory of those that are no longer needed, which can then not be read. ``interrupt`` is called
    repeatedly while compiling, which its exceptions end. ``notice`` is told at once what the user
    should know while it lasts, such as what is waited for.
    """

    precision: Precision = "auto"
    fusion: bool = True
    deterministic: bool = True
    tuning: Tuning | None = None
    tune: bool = True
    tune_seconds: float | None = None
    residency: Residency = "auto"
    calls: Calls = "best"
    share_memory: bool = False
    interrupt: Callable[[], None] = lambda: None
    notice: Callable[[str], None] = lambda text: None


@dataclass(frozen=True)
class BoundCall:
    """A step of a compiled section: the library call for an operation.

    ``arguments``: those of the call: geometry, shapes, layouts. ``op``: the operation that the call
    is for; for a call that only converts a layout, the operation that needs it.
    """

    op: Op
    library: str
    function: str
    implementation: str = ""
    arguments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What this machine reaches: GFLOP/s of a large gemm, GB/s of a large copy."""

    gflops: float
    gbytes: float

    def to_json(self) -> dict[str, float]:
        return {"gflops": self.gflops, "gbytes_per_second": self.gbytes}


@dataclass(frozen=True)
class Engine:
    """A way to compute a convolution; ``notes``: what its library says of it.

    ``flops``: None where the library does not tell. ``workspace``: bytes beside x, w and y.
    ``run()`` is y; ``seconds()``, after it, the time of a call without copies. Both are valid
    until the next engine is asked for.
    """

    library: str
    name: str
    notes: tuple[str, ...]
    flops: int | None
    workspace: int
    run: Callable[[], Array]
    seconds: Callable[[], float]


def check_array(tensor: Tensor, array: Array) -> None:
    """Raise ShapeError for an array that ``write`` cannot give to a tensor.

    A data set may have another length than declared.
    """
    first = 1 if tensor.role == "data" else 0
    if array.shape[first:] != tensor.shape[first:]:
        raise ShapeError(f"'{tensor.name}' has shape {tensor.shape}, not {array.shape}")
    if tensor.role == "data" and array.dtype != tensor.dtype:
        raise ShapeError(f"'{tensor.name}' is {tensor.dtype}, not {array.dtype}")


class Executable(Protocol):
    """Compiled sections that share parameters, state and data sets; owns all their memory.

    Arrays that enter or leave are canonical: NCHW, OIHW, (units, inputs), unpadded, fp32 (or the
    tensor's integer type), C-contiguous copies; only ``write`` of a "data" tensor keeps a
    reference, so the caller must not change that array.
    """

    @property
    def tuning(self) -> Tuning:
        """Everything that was decided by timing; compile with it again for equal bits."""

    @property
    def graphs(self) -> Mapping[str, Graph]:
        """The sections that run: after rewrites."""

    @property
    def notices(self) -> Sequence[str]:
        """What the user should know about compiling, such as a tuning that could not be applied."""

    def run(self, section: str, steps: int = 1, wait: bool = True) -> None:
        """Run a section ``steps`` times. Raises LibraryError with the failing call.

        Without ``wait`` it may return before the device is done; ``read`` and ``write`` then wait,
        and raise its errors.
        """

    def run_in_turn(self, sections: Sequence[str], steps: int = 1, wait: bool = True) -> None:
        """Run these sections one after the other, and that ``steps`` times; else as ``run``."""

    def write(self, tensor: Tensor, array: Array) -> None:
        """Set a tensor that comes from outside: input, data, parameter, state, scalar."""

    def read(self, tensor: Tensor) -> Array:
        """A copy of a tensor's value. Raises KeyError for a tensor that is not stored."""

    def patch_sums(
        self, images: Tensor, rows: Array, window: tuple[int, int]
    ) -> tuple[Array, Array] | None:
        """Sums over all patches (C, h, w) of the pictures ``rows`` of a data tensor (N, C, H, W).

        (P, P) int64: element i times element j; (P,) int64: element i; of the patch in the order of
        (C, h, w), each pixel less 128. None where the host adds them up: on a CPU, or where the
        pictures do not lie on the device, or it is not made for patches so large.
        """

    def function(self, section: str, given: Tensor, found: Tensor) -> Callable[[Array], Array]:
        """What writes ``given``, runs the section and reads ``found``, for many calls."""

    def calls(self, section: str) -> Sequence[BoundCall]:
        """The section's calls in order."""

    def halved(self, section: str) -> frozenset[Tensor]:
        """The tensors of a section whose numbers are kept and read in 16 bits."""

    def measure(self, section: str, repeats: int) -> list[float]:
        """Median seconds of every call of the section over ``repeats`` runs, in the order of calls.

        Parameters and state are restored afterwards.
        """

    def poison(self) -> None:
        """Overwrite memory that no run may rely on with bytes of 0xFF, NaN in every float type.

        That is all memory except constants, inputs, parameters, state, data sets, and valid copies
        of these. Results are lost too. This exposes a run that reads what it has not written.
        """

    def renew(self) -> None:
        """Zeros in parameters, state and gradients, as after compiling; data sets stay."""

    def renumber(self, sections: Mapping[str, Graph]) -> bool:
        """Compute with the numbers of these sections, which are after rewrites, as if they had been
        compiled. False, and all is as before, unless they differ from its own in nothing but
        numbers that its calls can take; ``calls`` shows those of the first sections.
        """

    def close(self) -> None:
        """Free everything; the executable is unusable afterwards."""


def in_three_steps(
    executable: Executable, section: str, given: Tensor, found: Tensor
) -> Callable[[Array], Array]:
    """``function`` of an executable that has nothing to look up in advance."""

    def call(array: Array) -> Array:
        executable.write(given, array)
        executable.run(section)
        return executable.read(found)

    return call


class Backend(Protocol):
    """A device with its libraries."""

    @property
    def name(self) -> str: ...

    @property
    def waiting_threads(self) -> int:
        """The number of CPU threads that wait for each other in every call; 0 for a GPU.

        Another program that keeps one of their cores busy delays all of them.
        """

    @property
    def pieces(self) -> int:
        """In how many pieces ranks on such devices add up their gradients, unless told otherwise:
        what is added up early goes on beside what is computed, or it does not."""

    @property
    def rewrites(self) -> Mapping[str, Rewrite]:
        """The rewrites whose results this backend can run, in the order of their application."""

    def compile(self, sections: Mapping[str, Graph], options: Options | None = None) -> Executable:
        """Choose engines and layouts, allocate all memory, bind every call.

        Raises ShapeError or LibraryError for an operation that cannot be bound.
        """

    def precision(self, wanted: Precision) -> Precision:
        """The precision that is used for ``wanted``, which may be ``auto``.

        Raises BackendUnavailableError for one that this device does not have.
        """

    def limits(self, precision: Precision = "auto") -> Limits:
        """Measure the machine, which takes about a second; products as in this precision."""

    def engines(self, op: Conv2d, x: Array, w: Array) -> Iterator[Engine]:
        """Every way that the libraries have for a convolution without bias, in float32."""

    def versions(self) -> Mapping[str, str]:
        """Everything that equal bits depend on: library versions, instruction set, threads."""
