"""Binder: turns the operations of one section into a list of bound calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ...common.errors import ShapeError
from ...graph.graph import EXTERNAL, SHARED, Graph, Op, Shape, Tensor
from ...graph.ops import Reshape
from ..base import Array, BoundCall
from ..registry import Registry
from .library import library
from .memory import Descriptor, Memory, Places
from .norm_kept import Normalized, Unscaled
from .primitive import NoFastKernel, Primitive, PrimitiveDesc, Step, copy, reorder_desc
from .store import DataSet, Store

OpT = TypeVar("OpT", bound=Op)
PartT = TypeVar("PartT")
Kernel = Callable[["Binder", Any], None]
Unite = Callable[["Binder", Sequence[Any]], Callable[[], None]]
KERNELS: Registry[Kernel] = Registry("cpu")
# The operations whose kernels can be bound in bfloat16; the others compute in float32.
BFLOAT16: set[type[Op]] = set()
BOTH = ("float32", "bfloat16")


def binds(
    kind: type[OpT], dtypes: tuple[str, ...] = ("float32",)
) -> Callable[[Callable[[Binder, OpT], None]], Kernel]:
    """Register the function that binds one type of operation.

    dtypes: the types in which it computes. One with BOTH takes activations by ``source`` and
    ``layout``, in the type that the binder has for it.
    """

    def register(kernel: Callable[[Binder, OpT], None]) -> Kernel:
        KERNELS[kind] = kernel
        if "bfloat16" in dtypes:
            BFLOAT16.add(kind)
        return kernel

    return register


class Binder:
    """Binds a section. Kernels ask for inputs in the layout they want and name their outputs'.

    ``choices`` are the layouts of convolutions by layer name. ``prologue`` holds the copies of
    parameters that this section does not change: they run when the section is entered.

    ``activations``: the type of activations and their gradients between the operations that have a
    primitive for it. ``dtype`` is the type in which the operation that is bound now computes.
    ``share``: activations take the memory of those that no later operation needs.
    """

    def __init__(
        self,
        graph: Graph,
        store: Store,
        choices: Mapping[str, str],
        activations: str = "float32",
        share: bool = False,
    ) -> None:
        self.graph, self.store, self.choices, self.activations = graph, store, choices, activations
        self.dtype = "float32"
        self.steps: list[Step] = []
        self.prologue: list[Step] = []
        self.memories: dict[Tensor, Memory] = {}
        self.arrays: dict[Tensor, Array] = {}
        self.forwards: dict[Tensor, tuple[PrimitiveDesc, Memory | None]] = {}
        # Where a training batch norm left its variances, by its tensor of means.
        self.variances: dict[Tensor, Memory] = {}
        # What it left in float32, by the same tensor.
        self.normalized: dict[Tensor, Normalized] = {}
        # What it left to the sum behind it, by the tensor that is never written.
        self.unscaled: dict[Tensor, Unscaled] = {}
        self.overwritten: set[Tensor] = set()
        self._copies: dict[Tensor, list[Memory]] = {}
        # Copies that are made when the section is entered, not in every run.
        self._entered: list[Memory] = []
        self._scratch: list[Array] = []
        self._temporary = np.empty(0, np.uint8)
        self.constants: list[Memory] = []
        self._places = Places(graph) if share else None
        self._position = 0
        self._late: dict[tuple[Unite, str], list[tuple[Op, Any, set[Tensor]]]] = {}
        self._updated = {t for op in graph.ops for t in op.tensors(op.updates)}

    def bind(self) -> None:
        """Bind every operation in order. Raises DnnlError or ShapeError for one that cannot be."""
        for position, op in enumerate(self.graph.ops):
            self._position = position
            self._flush({*op.reads(), *op.writes()})
            self.dtype = self.activations if type(op) in BFLOAT16 else "float32"
            self.bind_one(op)
        self._flush()

    def bind_one(self, op: Op) -> None:
        """Bind an operation by its kernel, or by the reference's if oneDNN has no fast one."""
        try:
            KERNELS.of(op)(self, op)
        except NoFastKernel:
            KERNELS.default(op)(self, op)

    def array(self, tensor: Tensor) -> Array:
        """The host array of an integer or float64 tensor; not for data sets, see ``data``."""
        held = self.store.arrays if tensor.role in SHARED else self.arrays
        if tensor not in held:
            held[tensor] = np.zeros(tensor.shape, tensor.dtype)
        return held[tensor]

    def data(self, tensor: Tensor) -> Callable[[], Array]:
        """A function that returns the array which was written last: data sets are exchanged."""
        empty = np.zeros((0, *tensor.shape[1:]), tensor.dtype)
        held = self.store.data.setdefault(tensor, DataSet(empty))
        return lambda: held.array

    def home(self, tensor: Tensor, dtype: str = "float32") -> Memory:
        """A float tensor in its own layout: its memory, or a copy if that is of another type."""
        memory = self._home(tensor)
        known = memory.descriptor
        return memory if known.dtype == dtype else self.want(tensor, known.retyped(dtype))

    def source(self, tensor: Tensor) -> Memory:
        """An activation in its own layout, in the type of the operation that is bound now."""
        return self.home(tensor, self.dtype)

    def layout(self, shape: Shape, name: str = "plain") -> Descriptor:
        """A descriptor in the type of the operation that is bound now."""
        return Descriptor.of(shape, name, self.dtype)

    def written_type(self, tensor: Tensor) -> str:
        """The type to write an output in: bfloat16 if the operation and a reader have it."""
        if self.dtype == "float32" or tensor.role != "activation":
            return "float32"
        readers = self.graph.consumers(tensor)
        # A result that has no reader here is read outside.
        unread = not readers and tensor not in self.graph.results.values()
        return self.dtype if unread or any(map(self._reads_bfloat16, readers)) else "float32"

    def _reads_bfloat16(self, reader: Op) -> bool:
        if isinstance(reader, Reshape):
            return self.written_type(reader.y) != "float32"
        return type(reader) in BFLOAT16

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
        copies = self._copies.setdefault(tensor, [])
        for copied in copies:
            if copied.descriptor == descriptor:
                return copied
        if len(home.descriptor.shape) != len(descriptor.shape):
            home = home.view(Descriptor.of(descriptor.shape, "plain", home.descriptor.dtype))
        copied = self._placed(tensor, descriptor)
        copies.append(copied)
        steps = self.steps
        if tensor.role in SHARED and tensor not in self._updated:
            self._entered.append(copied)
            steps = self.prologue
        op, desc = self.graph.ops[self._position], reorder_desc(home.descriptor, descriptor)
        self.primitive(op, desc, {"src": home, "dst": copied}, {"tensor": tensor.name}, steps)
        return copied

    def plain(self, tensor: Tensor) -> Memory:
        """The tensor in row-major order, in float32."""
        return self.want(tensor, Descriptor.of(tensor.shape))

    def output(self, tensor: Tensor, descriptor: Descriptor | None = None) -> Memory:
        """The memory to write an output in this layout, by default row-major in float32.

        A gradient's home lies in the arena, laid out as planned, and must be asked for as such.
        """
        descriptor = descriptor or Descriptor.of(tensor.shape)
        home = self.memories.get(tensor)
        if home is None:
            home = self.memories[tensor] = self._placed(tensor, descriptor)
        elif home.descriptor != descriptor:
            raise ShapeError(f"{tensor.name}: laid out as {home.descriptor}, not {descriptor}")
        return home

    def _placed(self, tensor: Tensor, descriptor: Descriptor) -> Memory:
        """New memory for a tensor, or, if places are shared, that of tensors no longer needed."""
        if self._places is None or tensor.role != "activation":
            return Memory(descriptor)
        memory, before = self._places.take(tensor, descriptor, self._position)
        self.overwritten.update(before)
        return memory

    def alias(self, tensor: Tensor, memory: Memory) -> None:
        """Let a tensor share another's bytes."""
        self.memories[tensor] = memory
        if self._places is not None:
            self._places.join(tensor, memory)

    def hold(self, tensor: Tensor, op: Op) -> None:
        """Keep a tensor's memory until an operation that does not read it in the graph."""
        if self._places is not None:
            self._places.hold(tensor, op)

    def may_overwrite(self, tensor: Tensor) -> bool:
        """Whether the tensor's bytes are not needed after the operation that is bound now."""
        home = self._home(tensor)
        if self._is_kept(home):
            return False
        buffer = home.buffer.ctypes.data
        later = self.graph.ops[self._position + 1 :]
        results = set(self.graph.results.values())
        return all(
            t.role == "activation" and t not in results and not any(t in op.reads() for op in later)
            for t, memory in self.memories.items()
            if memory.buffer.ctypes.data == buffer
        )

    def poison(self, entering: bool) -> None:
        """Bytes of 0xFF in all that ``changing`` names, but in gradients zeros where a layout is
        padded: not every primitive writes these, and updates run over them."""
        for array in self.changing(entering):
            array.view(np.uint8)[...] = 0xFF
        for tensor, memory in self.memories.items():
            if tensor.role == "gradient":
                memory.buffer[:] = 0
                copy(self._filled(memory.descriptor, np.nan), memory)

    def _filled(self, descriptor: Descriptor, value: float | Sequence[float]) -> Memory:
        """Row-major numbers of the descriptor's shape."""
        filled = Memory.plain(descriptor.shape)
        filled.array()[:] = value
        return filled

    def _is_kept(self, memory: Memory) -> bool:
        """Whether the bytes are those of a parameter or state, perhaps under another shape, or a
        copy of them that is made when the section is entered."""
        address = memory.buffer.ctypes.data
        held = (m for t, m in self.store.memories.items() if t.role in SHARED)
        return any(m.buffer.ctypes.data == address for m in chain(held, self._entered))

    def scratch(self, descriptor: Descriptor, buffer: Array | None = None) -> Memory:
        """Memory, new unless given, that every run writes before it reads it."""
        memory = Memory(descriptor, buffer)
        self._scratch.append(memory.bytes)
        return memory

    def temporary(self, descriptor: Descriptor) -> Memory:
        """Scratch for one operation alone: the next one may get the same bytes."""
        if self._temporary.nbytes < descriptor.nbytes:
            self._temporary = self.scratch(descriptor).buffer
        return Memory(descriptor, self._temporary)

    def entered(self, descriptor: Descriptor) -> Memory:
        """Memory that the prologue writes, and nothing else."""
        memory = Memory(descriptor)
        self._entered.append(memory)
        return memory

    def scratch_array(self, shape: Shape, dtype: Any = np.float32) -> Array:
        """The same for what the host computes."""
        array = np.empty(shape, dtype)
        self._scratch.append(array)
        return array

    def constant(self, descriptor: Descriptor, value: float | Sequence[float]) -> Memory:
        """Memory that is written here alone: one number everywhere, or numbers in row-major order.

        Padding of the layout is zero.
        """
        memory = Memory(descriptor)
        copy(self._filled(descriptor, value), memory)
        self.constants.append(memory)
        return memory

    def changing(self, entering: bool) -> Iterator[Array]:
        """All memory whose contents no run may rely on, for each writes it before it reads it.

        entering: so that the copies made when the section is entered are among it. What remains
        are constants and what comes from outside: inputs, parameters, state, data.
        """
        for tensor, memory in self.memories.items():
            if tensor.role not in EXTERNAL and not self._is_kept(memory):
                yield memory.bytes
        for tensor, array in self.arrays.items():
            if tensor.role not in EXTERNAL:
                yield array
        for copied in chain.from_iterable(self._copies.values()):
            if not any(copied is other for other in self._entered):
                yield copied.bytes
        if entering:
            yield from (memory.bytes for memory in self._entered)
        yield from self._scratch

    def primitive(
        self,
        op: Op,
        desc: PrimitiveDesc,
        arguments: Mapping[str, Memory],
        details: Mapping[str, object] | None = None,
        steps: list[Step] | None = None,
    ) -> None:
        """Append a library call."""
        primitive = Primitive(desc, arguments)
        shown = {key: str(value) for key, value in (details or {}).items()} | primitive.shown()
        call = BoundCall(op, "oneDNN", primitive.function, primitive.implementation, shown)
        target = self.steps if steps is None else steps
        target.append(Step(library().execute, primitive.call, call, primitive))

    def tensors(
        self,
        op: Op,
        desc: PrimitiveDesc,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor],
        details: Mapping[str, object] | None = None,
        further: Mapping[str, Memory | None] | None = None,
    ) -> dict[str, Memory]:
        """Append a library call on tensors, all of them in the layouts that the primitive wants.

        further: arguments that are no such tensors, None for those that are left out. Returns all.
        """
        arguments = {at: self.want(t, desc.descriptor(at)) for at, t in inputs.items()}
        arguments |= {at: self.output(t, desc.descriptor(at)) for at, t in outputs.items()}
        arguments |= {at: memory for at, memory in (further or {}).items() if memory is not None}
        self.primitive(op, desc, arguments, details)
        return arguments

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

    def host_late(
        self,
        op: Op,
        unite: Callable[[Binder, Sequence[PartT]], Callable[[], None]],
        part: PartT,
        name: str,
        written: Sequence[Tensor],
    ) -> None:
        """Append a part of some work on the host, which may wait until an operation touches what it
        writes, or for the end: then ``unite`` makes one function of all parts that wait."""
        self._late.setdefault((unite, name), []).append((op, part, set(written)))

    def _flush(self, touched: set[Tensor] | None = None) -> None:
        """Append all that waits, in order, where any of these tensors is touched."""
        late = [part for parts in self._late.values() for part in parts]
        if touched is None or any(touched & written for _, _, written in late):
            for (unite, name), parts in self._late.items():
                every = [part for _, part, _ in parts]
                self.host(parts[0][0], unite(self, every), name, {"operations": str(len(every))})
            self._late.clear()
