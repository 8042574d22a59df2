"""Binder: turns the operations of one section into a list of launches on one stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ....common.errors import ShapeError
from ...graph import SHARED, Graph, Op, Tensor
from ..base import BoundCall
from .conv_graph import ConvGraph
from .cublas import Cublas
from .cudnn_library import Cudnn
from .kernels import i32, i64, linear
from .runtime import cupy, device

OpT = TypeVar("OpT", bound=Op)
Kernel = Callable[["Binder", Any], None]
KERNELS: dict[type[Op], Kernel] = {}


def binds(kind: type[OpT]) -> Callable[[Callable[[Binder, OpT], None]], Kernel]:
    """Register the function that binds one type of operation."""

    def register(kernel: Callable[[Binder, OpT], None]) -> Kernel:
        KERNELS[kind] = kernel
        return kernel

    return register


@dataclass(frozen=True)
class Step:
    """One entry of the list: a launch on our stream, and what it is."""

    launch: Callable[[], None]
    call: BoundCall


@dataclass
class Buffer:
    """A flat device array and how a tensor of four dimensions lies in it: nchw or nhwc.

    Tensors of other dimensions are row-major whatever the layout says.
    """

    array: Any
    layout: str = "nchw"

    @property
    def pointer(self) -> int:
        return int(self.array.data.ptr)


@dataclass(frozen=True)
class Libraries:
    """The handles that a section's launches use, and how exact they must be."""

    cublas: Cublas
    cudnn: Cudnn
    exact: bool
    deterministic: bool


class Store:
    """What sections share: parameters, state, data sets; arenas of parameters and momenta.

    ``generation`` counts the data sets that moved: a captured graph of before is stale.
    """

    def __init__(self) -> None:
        self.buffers: dict[Tensor, Buffer] = {}
        self.data: dict[Tensor, Any] = {}
        self.arenas: dict[str, Any] = {}
        self.spans: dict[Tensor, tuple[str, int, int]] = {}
        self.generation = 0

    def add_arena(self, name: str, tensors: tuple[Tensor, ...], layout: str) -> None:
        """Lay tensors one behind the other, each aligned to 128 bytes, zeroed."""
        end = 0
        spans = {}
        for tensor in tensors:
            size = -(-tensor.size // 32) * 32
            spans[tensor] = (end, end + size)
            end += size
        arena = cupy().zeros(end, "float32")
        self.arenas[name] = arena
        for tensor, (start, stop) in spans.items():
            self.spans[tensor] = (name, start, stop)
            self.buffers[tensor] = Buffer(arena[start : start + tensor.size], layout)

    def stretch(self, tensors: list[Tensor]) -> Any:
        """The flat array over neighbours of one arena, padding included."""
        spans = [self.spans[tensor] for tensor in tensors]
        (name, start, _), (last, _, stop) = spans[0], spans[-1]
        if name != last or stop - start != sum(end - begin for _, begin, end in spans):
            raise ShapeError("an update runs over tensors that do not lie side by side")
        return self.arenas[name][start:stop]


class Binder:
    """Binds a section; ``layout`` is how pictures and filters lie on the device."""

    def __init__(
        self, graph: Graph, store: Store, libraries: Libraries, choices: Mapping[str, str]
    ) -> None:
        self.graph = graph
        self.store = store
        self.libraries = libraries
        self.choices = choices
        self.layout = choices.get("layout", "nhwc")
        self.steps: list[Step] = []
        self.buffers: dict[Tensor, Buffer] = {}
        self.workspace_bytes = 0
        self.convolutions: dict[str, tuple[ConvGraph, Buffer]] = {}
        self.late: list[Callable[[int], None]] = []
        self._position = 0
        self._copies: dict[tuple[Tensor, str], Buffer] = {}
        self._keep: list[Any] = []

    def bind(self) -> None:
        """Bind every operation in order, then the workspace that all of them share."""
        for position, op in enumerate(self.graph.ops):
            self._position = position
            KERNELS[type(op)](self, op)
        workspace = self.keep(cupy().empty(max(self.workspace_bytes, 16), "uint8"))
        for fix in self.late:
            fix(int(workspace.data.ptr))

    def keep(self, thing: Any) -> Any:
        """Hold something alive as long as the section."""
        self._keep.append(thing)
        return thing

    # ------------------------------------------------------------ tensors

    def home(self, tensor: Tensor) -> Buffer:
        """The buffer that holds a tensor; one that comes from outside starts zeroed, row-major."""
        held = self.store.buffers if tensor.role in SHARED else self.buffers
        if tensor not in held:
            held[tensor] = Buffer(cupy().zeros(tensor.size, tensor.dtype))
        return held[tensor]

    def data(self, tensor: Tensor) -> Any:
        """The device array of a data set as it is now; it may be exchanged, see generation."""
        if tensor not in self.store.data:
            self.store.data[tensor] = cupy().zeros(tensor.shape, tensor.dtype)
        return self.store.data[tensor]

    def want(self, tensor: Tensor, layout: str) -> Buffer:
        """The tensor in this layout: its home, or a copy that a launch makes now."""
        home = self.home(tensor)
        if home.layout == layout or not spread(tensor):
            return home
        key = (tensor, layout)
        if key not in self._copies or tensor.role not in ("activation", "gradient"):
            copied = self._copies.setdefault(key, Buffer(cupy().empty_like(home.array), layout))
            self._transpose(tensor, home, copied)
        return self._copies[key]

    def _transpose(self, tensor: Tensor, source: Buffer, target: Buffer) -> None:
        _, channels, *rest = tensor.shape
        pixels = tensor.size // (tensor.shape[0] * channels)
        name = f"{source.layout}_to_{target.layout}"
        arguments = (source.array, target.array, i64(tensor.size), i32(channels), i32(pixels))
        op = self.graph.ops[self._position]
        self.kernel(op, name, linear(name, tensor.size, arguments), {"tensor": tensor.name})

    def output(self, tensor: Tensor, layout: str = "nchw") -> Buffer:
        """The buffer to write an output in this layout; a gradient's lies in its arena."""
        if tensor in self.buffers:
            held = self.buffers[tensor]
            if held.layout != layout and spread(tensor):
                raise ShapeError(f"{tensor.name}: laid out {held.layout}, not {layout}")
            return held
        buffer = Buffer(cupy().empty(tensor.size, tensor.dtype), layout)
        self.buffers[tensor] = buffer
        return buffer

    def alias(self, tensor: Tensor, buffer: Buffer) -> None:
        """Let a tensor share another's bytes, row-major."""
        self.buffers[tensor] = Buffer(buffer.array, "nchw")

    # ------------------------------------------------------------ launches

    def add(
        self,
        op: Op,
        library: str,
        function: str,
        launch: Callable[[], None],
        details: Mapping[str, object] | None = None,
        implementation: str = "",
    ) -> None:
        """Append a launch."""
        shown = {key: str(value) for key, value in (details or {}).items()}
        self.steps.append(Step(launch, BoundCall(op, library, function, implementation, shown)))

    def kernel(
        self,
        op: Op,
        name: str,
        launch: Callable[[], None],
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Append a launch of one of our kernels."""
        self.add(op, "dnnstack", name, launch, details, "kernels.cu")


def spread(tensor: Tensor) -> bool:
    """Whether the layouts of a tensor differ: pictures and filters of several pixels, channels."""
    if len(tensor.shape) != 4:
        return False
    _, c, h, w = tensor.shape
    return c > 1 and h * w > 1


def inner(tensor: Tensor, layout: str) -> int:
    """How many neighbours in memory share a channel: pixels for nchw pictures, else 1."""
    if len(tensor.shape) != 4 or layout == "nhwc":
        return 1
    return tensor.shape[2] * tensor.shape[3]


def synchronize() -> None:
    """Wait for our stream."""
    device().stream.synchronize()
