"""Binder: turns the operations of one section into a list of bound calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ....common.errors import DnnlError, ShapeError
from ...graph import SHARED, Graph, Op, Shape, Tensor
from ...ops import Reshape
from ..base import BoundCall
from .constants import DST, SRC
from .library import library
from .memory import Descriptor, Memory
from .primitive import Primitive, PrimitiveDesc, reorder_desc
from .store import Store

OpT = TypeVar("OpT", bound=Op)
Kernel = Callable[["Binder", Any], None]
KERNELS: dict[type[Op], Kernel] = {}
# The operations whose kernels can be bound in bfloat16; the others compute in float32.
NARROW: set[type[Op]] = set()


def binds(
    kind: type[OpT], narrow: bool = False
) -> Callable[[Callable[[Binder, OpT], None]], Kernel]:
    """Register the function that binds one type of operation.

    A ``narrow`` one takes activations by ``source`` and ``layout``, in the type that the binder
    has for it, which may be bfloat16.
    """

    def register(kernel: Callable[[Binder, OpT], None]) -> Kernel:
        KERNELS[kind] = kernel
        if narrow:
            NARROW.add(kind)
        return kernel

    return register


@dataclass(frozen=True)
class Step:
    """One entry of the list: ``function(*arguments)`` returns a dnnl status or None."""

    function: Callable[..., int | None]
    arguments: tuple[Any, ...]
    call: BoundCall
    primitive: Primitive | None = None


class Binder:
    """Binds a section. Kernels ask for inputs in the layout they want and name their outputs'.

    ``choices`` are the layouts of convolutions by layer name. ``prologue`` holds the copies of
    parameters that this section does not change: they run when the section is entered.

    ``narrow``: activations and their gradients are bfloat16 between the operations that have a
    primitive for it. ``dtype`` is the type in which the operation that is bound now computes.
    """

    def __init__(
        self, graph: Graph, store: Store, choices: Mapping[str, str], narrow: bool = False
    ) -> None:
        self.graph = graph
        self.store = store
        self.choices = choices
        self.narrow = narrow
        self.dtype = "float32"
        self.steps: list[Step] = []
        self.prologue: list[Step] = []
        self.memories: dict[Tensor, Memory] = {}
        self.arrays: dict[Tensor, NDArray[Any]] = {}
        self.forwards: dict[Tensor, tuple[PrimitiveDesc, Memory | None]] = {}
        # Where a training batch norm left its variances, by its tensor of means.
        self.variances: dict[Tensor, Memory] = {}
        self.overwritten: set[Tensor] = set()
        self._copies: dict[Tensor, list[Memory]] = {}
        self._position = 0
        self._updated = {t for op in graph.ops for t in op.tensors(op.updates)}

    def bind(self) -> None:
        """Bind every operation in order. Raises DnnlError or ShapeError for one that cannot be."""
        for position, op in enumerate(self.graph.ops):
            self._position = position
            self.dtype = "bfloat16" if self.narrow and type(op) in NARROW else "float32"
            KERNELS[type(op)](self, op)

    # ------------------------------------------------------------ tensors

    def array(self, tensor: Tensor) -> NDArray[Any]:
        """The host array of an integer or float64 tensor; not for data sets, see ``data``."""
        held = self.store.arrays if tensor.role in SHARED else self.arrays
        if tensor not in held:
            held[tensor] = np.zeros(tensor.shape, tensor.dtype)
        return held[tensor]

    def data(self, tensor: Tensor) -> Callable[[], NDArray[Any]]:
        """A function that returns the array which was written last: data sets are exchanged."""
        arrays = self.store.arrays
        arrays.setdefault(tensor, np.zeros((0, *tensor.shape[1:]), tensor.dtype))
        return lambda: arrays[tensor]

    def home(self, tensor: Tensor) -> Memory:
        """A float tensor in float32, in its own layout: its memory, or a copy of a bfloat16 one."""
        return self._typed(tensor, "float32")

    def source(self, tensor: Tensor) -> Memory:
        """An activation in its own layout, in the type of the operation that is bound now."""
        return self._typed(tensor, self.dtype)

    def layout(self, shape: Shape, name: str = "plain") -> Descriptor:
        """A descriptor in the type of the operation that is bound now."""
        return Descriptor.of(shape, name, self.dtype)

    def written_type(self, tensor: Tensor) -> str:
        """The type to write an output in: bfloat16 where the operation and a reader have it."""
        if self.dtype == "float32" or tensor.role != "activation":
            return "float32"
        readers = self.graph.consumers(tensor)
        if not readers:
            # Nobody but, where it is a result, the world outside.
            return "float32" if tensor in self.graph.results.values() else self.dtype
        return self.dtype if any(self._reads_narrow(reader) for reader in readers) else "float32"

    def _reads_narrow(self, reader: Op) -> bool:
        if isinstance(reader, Reshape):
            return self.written_type(reader.y) != "float32"
        return type(reader) in NARROW

    def _typed(self, tensor: Tensor, dtype: str) -> Memory:
        memory = self._home(tensor)
        known = memory.descriptor
        return memory if known.dtype == dtype else self.want(tensor, known.retyped(dtype))

    def _home(self, tensor: Tensor) -> Memory:
        """The memory that holds a float tensor; one that comes from outside starts row-major."""
        held = self.store.memories if tensor.role in SHARED else self.memories
        if tensor not in held:
            held[tensor] = Memory.plain(tensor.shape)
        return held[tensor]

    def want(self, tensor: Tensor, descriptor: Descriptor) -> Memory:
        """The tensor in this layout and type: a view of its home, or a copy made before the call.

        A copy from one type to the other is how operations without bfloat16 are fed.
        """
        home = self._home(tensor)
        if home.descriptor == descriptor and home.descriptor.shape == descriptor.shape:
            # Equal descriptors may differ in strides of size-1 dimensions, which decide the kernel.
            return home.view(descriptor)
        for copied in self._copies.setdefault(tensor, []):
            if copied.descriptor == descriptor:
                return copied
        source = home
        if len(home.descriptor.shape) != len(descriptor.shape):
            source = home.view(Descriptor.of(descriptor.shape, "plain", home.descriptor.dtype))
        copied = Memory(descriptor)
        self._copies[tensor].append(copied)
        constant = tensor.role in SHARED and tensor not in self._updated
        op = self.graph.ops[self._position]
        self.primitive(
            op,
            reorder_desc(source.descriptor, descriptor),
            {SRC: source, DST: copied},
            {"tensor": tensor.name},
            self.prologue if constant else self.steps,
        )
        return copied

    def plain(self, tensor: Tensor) -> Memory:
        """The tensor in row-major order, in float32."""
        return self.want(tensor, Descriptor.of(tensor.shape))

    def output(self, tensor: Tensor, descriptor: Descriptor) -> Memory:
        """The memory to write an output in this layout.

        A gradient's home lies in the arena, laid out as planned, and must be asked for as such.
        """
        if tensor in self.memories:
            home = self.memories[tensor]
            if home.descriptor != descriptor:
                raise ShapeError(f"{tensor.name}: laid out as {home.descriptor}, not {descriptor}")
            return home
        memory = Memory(descriptor)
        self.memories[tensor] = memory
        return memory

    def alias(self, tensor: Tensor, memory: Memory) -> None:
        """Let a tensor share another's bytes."""
        self.memories[tensor] = memory

    def may_overwrite(self, tensor: Tensor) -> bool:
        """Whether nobody needs the tensor's bytes after the operation that is bound now."""
        buffer = self._home(tensor).buffer.ctypes.data
        later = self.graph.ops[self._position + 1 :]
        results = set(self.graph.results.values())
        return all(
            t.role == "activation" and t not in results and not any(t in op.reads() for op in later)
            for t, memory in self.memories.items()
            if memory.buffer.ctypes.data == buffer
        )

    # ------------------------------------------------------------ calls

    def primitive(
        self,
        op: Op,
        desc: PrimitiveDesc,
        arguments: Mapping[int, Memory],
        details: Mapping[str, object] | None = None,
        steps: list[Step] | None = None,
    ) -> None:
        """Append a library call."""
        primitive = Primitive(desc, arguments)
        shown = {key: str(value) for key, value in (details or {}).items()} | primitive.shown()
        call = BoundCall(op, "oneDNN", primitive.function, primitive.implementation, shown)
        target = self.steps if steps is None else steps
        target.append(Step(library().execute, primitive.call, call, primitive))

    def host(
        self,
        op: Op,
        function: Callable[[], None],
        name: str,
        details: Mapping[str, str] | None = None,
    ) -> None:
        """Append work that NumPy does on the host."""
        call = BoundCall(op, "numpy", name, "", details or {})
        self.steps.append(Step(function, (), call))


def attempt(
    kind: str, candidates: Sequence[Callable[[], tuple[Any, ...]]], shown: Mapping[str, object]
) -> PrimitiveDesc | None:
    """The first candidate's primitive descriptor that has more than reference code, else None."""
    for candidate in candidates:
        try:
            desc = PrimitiveDesc(kind, *candidate(), shown=shown)
        except DnnlError:
            continue
        if not desc.is_reference:
            return desc
    return None


def channel_shape(tensor: Tensor) -> Shape:
    """(1, C, 1, ...): how a tensor of one value a channel is spread over ``tensor``."""
    return (1, tensor.shape[1], *[1] * (len(tensor.shape) - 2))
