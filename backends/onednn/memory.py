"""Descriptors (shape and layout), memories (a descriptor over a buffer), and shared places."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from ctypes import POINTER, addressof, byref, c_char, c_int, c_int64
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.native import Owned
from ...graph.graph import Graph, Op, Shape, Tensor
from .constants import ASK_ARRAY, ASK_NUMBER, DATA_TYPE_NAMES, DATA_TYPES, LAYOUT_TAGS, PLAIN_TAGS
from .library import Dims, library

ALIGNMENT = 64
# NHWC first: pictures of one channel are laid out alike in both, with faster kernels here.
LAYOUTS = ("nhwc", "nchw", "nChw16c", "nChw8c")
_LETTERS = "abcdefghijkl"
_NAMES = {
    "abcd": "nchw",
    "acdb": "nhwc",
    "aBcd16b": "nChw16c",
    "aBcd8b": "nChw8c",
    "ab": "nc",
    "a": "x",
}


class _Allowance(threading.local):
    """Bytes that a thread may still ask for, see host_memory.py: others compile networks beside."""

    left = 1 << 62


allowance = _Allowance()


def aligned(nbytes: int) -> NDArray[np.uint8]:
    """A zeroed buffer of this many bytes that starts at a multiple of 64. Raises MemoryError."""
    _ask(nbytes)
    return _reserved(nbytes)


def _reserved(nbytes: int) -> NDArray[np.uint8]:
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def _ask(nbytes: int) -> None:
    allowance.left -= nbytes
    if allowance.left < 0:
        raise MemoryError(f"{nbytes} bytes more than are free")


class Descriptor(Owned):
    """dnnl_memory_desc_t: dimensions, data type and layout."""

    @classmethod
    def of(cls, shape: Shape, layout: str = "plain", dtype: str = "float32") -> Descriptor:
        """layout: "plain" (row-major), "any" (the library chooses), or a name such as nhwc."""
        tag = PLAIN_TAGS[len(shape)] if layout == "plain" else LAYOUT_TAGS[layout]
        shown = {"shape": shape, "layout": layout, "dtype": dtype}
        numbers = len(shape), Dims(*shape), DATA_TYPES[dtype], tag
        return cls._made("create_with_tag", *numbers, shown=shown)

    @classmethod
    def clone(cls, borrowed: int) -> Descriptor:
        """An own copy of a descriptor that belongs to a primitive descriptor."""
        return cls._made("clone", borrowed)

    @classmethod
    def _made(
        cls, function: str, *arguments: Any, shown: Mapping[str, object] | None = None
    ) -> Descriptor:
        handle = library().create(f"memory_desc_{function}", *arguments, shown=shown)
        return cls(handle, library().destroyer("memory_desc"))

    def part(self, shape: Shape, offsets: Shape) -> Descriptor:
        """The layout of a part of this one, in the same bytes; DnnlError if it cuts a block."""
        shown = {"of": self, "shape": shape, "offsets": offsets}
        dims = Dims(*shape), Dims(*offsets)
        return self._made("create_submemory", self.handle, *dims, shown=shown)

    def __eq__(self, other: object) -> bool:
        """Whether both lay out memory alike; strides of dimensions of size 1 do not count."""
        if not isinstance(other, Descriptor):
            return NotImplemented
        return bool(library().dll.dnnl_memory_desc_equal(self.handle, other.handle))

    __hash__ = None  # type: ignore[assignment]  # equality is the library's, and has no hash

    @property
    def dtype(self) -> str:
        """The type's name as ``of`` takes it."""
        number = self._number("data_type")
        return next(name for name, known in DATA_TYPES.items() if known == number)

    def retyped(self, dtype: str) -> Descriptor:
        """The same layout for another type; row-major if it has no name."""
        shape, own = self.shape, self.dtype
        names = LAYOUTS if len(shape) == 4 else ()
        alike = (name for name in names if Descriptor.of(shape, name, own) == self)
        return Descriptor.of(shape, next(alike, "plain"), dtype)

    @property
    def nbytes(self) -> int:
        return int(library().dll.dnnl_memory_desc_get_size(self.handle))

    @property
    def shape(self) -> Shape:
        return tuple(self._array("dims", self._number("ndims")))

    def __str__(self) -> str:
        """Type, layout and shape: ``f32 nhwc 64x1x28x28``."""
        shape = self.shape
        strides = self._array("strides", len(shape))
        blocks = self._number("inner_nblks")
        inner = self._array("inner_idxs", blocks)
        sizes = self._array("inner_blks", blocks)
        order = sorted(range(len(shape)), key=lambda a: (-strides[a], shape[a] == 1))
        tag = "".join(_LETTERS[a].upper() if a in inner else _LETTERS[a] for a in order)
        tag += "".join(f"{size}{_LETTERS[a]}" for size, a in zip(sizes, inner, strict=True))
        dtype = DATA_TYPE_NAMES[self._number("data_type")]
        return f"{dtype} {_NAMES.get(tag, tag)} {'x'.join(map(str, shape))}"

    def _number(self, query: str) -> int:
        value = c_int()
        library().call("memory_desc_query", self.handle, ASK_NUMBER[query], byref(value))
        return value.value

    def _array(self, query: str, count: int) -> list[int]:
        pointer = POINTER(c_int64)()
        library().call("memory_desc_query", self.handle, ASK_ARRAY[query], byref(pointer))
        return [pointer[i] for i in range(count)]


class Memory(Owned):
    """dnnl_memory_t over a 64-byte aligned buffer, new and zeroed unless given."""

    def __init__(self, descriptor: Descriptor, buffer: NDArray[np.uint8] | None = None) -> None:
        self.descriptor = descriptor
        self.buffer = aligned(max(descriptor.nbytes, 4)) if buffer is None else buffer
        if self.buffer.nbytes < descriptor.nbytes:
            raise ValueError(f"a buffer of {self.buffer.nbytes} bytes is too small: {descriptor}")
        self._place = self.buffer.ctypes.data
        handle = library().create(
            "memory_create",
            descriptor.handle,
            library().engine.handle,
            self._place,
            shown={"descriptor": descriptor},
        )
        super().__init__(handle, library().destroyer("memory"), descriptor, self.buffer)

    @classmethod
    def plain(cls, shape: Shape) -> Memory:
        """A zeroed row-major memory in float32."""
        return cls(Descriptor.of(shape))

    def point_to(self, array: NDArray[Any], start: int = 0) -> None:
        """Let the library read an array's bytes from ``start`` on, in place of the buffer.

        The array must not go away before the next call reads it.
        """
        # What is quickest to look up, here more than once in a call of some microseconds.
        if array.flags.writeable:
            place = addressof(c_char.from_buffer(array)) + start  # type: ignore[arg-type]
        else:
            place = array.__array_interface__["data"][0] + start
        if place != self._place:
            library().call("memory_set_data_handle", self.handle, place)
            self._place = place

    @property
    def bytes(self) -> NDArray[np.uint8]:
        """The part of the buffer that the descriptor lays out."""
        return self.buffer[: self.descriptor.nbytes]

    def view(self, descriptor: Descriptor) -> Memory:
        """The same bytes under another descriptor."""
        return Memory(descriptor, self.buffer)

    def array(self, shape: Shape | None = None, dtype: Any = np.float32) -> NDArray[Any]:
        """The buffer as an array: right only if the layout is row-major. Not a copy."""
        flat: NDArray[Any] = self.bytes.view(dtype)
        return flat if shape is None else flat.reshape(shape)


def channel_shape(tensor: Tensor) -> Shape:
    """(1, C, 1, ...): how a tensor of one value per channel is spread over ``tensor``."""
    return (1, tensor.shape[1], *[1] * (len(tensor.shape) - 2))


@dataclass
class _Span:
    """Some bytes, and the tensors that lie, or lay, in them."""

    begin: int
    end: int
    tensors: set[Tensor]


class Places:
    """The memory of a section's activations, given out in the order of its operations.

    A tensor is needed from the operation that writes it to the last that reads it; a result to the
    end. It lies in the first gap that is large enough. What is reserved is touched, and counts,
    only as far as it is given out.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph, self._last = graph, dict[Tensor, float]()
        for position, op in enumerate(graph.ops):
            self._last.update(dict.fromkeys((*op.reads(), *op.writes()), position))
        self._last.update(dict.fromkeys(graph.results.values(), inf))
        self._spans: list[_Span] = []
        self._most = 0
        self._room = _reserved(sum(_whole(tensor.nbytes) for tensor in self._last))

    def take(
        self, tensor: Tensor, descriptor: Descriptor, position: int
    ) -> tuple[Memory, Iterable[Tensor]]:
        """Memory for a tensor at the operation of this number, and whose it was before."""
        size, begin = _whole(descriptor.nbytes), 0
        for span in self._spans:
            if any(self._last.get(t, inf) >= position for t in span.tensors):
                if span.begin - begin >= size:
                    break
                begin = max(begin, span.end)
        end = begin + size
        if end > self._room.nbytes:
            return Memory(descriptor), ()
        _ask(max(end - self._most, 0))
        self._most = max(end, self._most)
        over = [span for span in self._spans if begin < span.end and span.begin < end]
        kept = [span for span in self._spans if span.end <= begin or end <= span.begin]
        self._spans = sorted([*kept, _Span(begin, end, {tensor})], key=lambda span: span.begin)
        before = {t for span in over for t in span.tensors} - {tensor}
        return Memory(descriptor, self._room[begin:end]), before

    def hold(self, tensor: Tensor, op: Op) -> None:
        """Say that an operation reads the tensor, too."""
        self._last[tensor] = max(self._last[tensor], self._graph.ops.index(op))

    def join(self, tensor: Tensor, memory: Memory) -> None:
        """Say that a tensor lies in the same bytes as ``memory``."""
        place = memory.buffer.ctypes.data - self._room.ctypes.data
        for span in self._spans:
            if span.begin <= place < span.end:
                span.tensors.add(tensor)


def _whole(nbytes: int) -> int:
    return -(-max(nbytes, 4) // ALIGNMENT) * ALIGNMENT
