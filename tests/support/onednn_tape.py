"""A stand-in for oneDNN, which writes down what it is asked for and computes nothing but copies.

It has every kernel in every layout, so what is bound on it is the same on every processor.
"""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

from dnnstack.backends.onednn.constants import (
    ARGUMENTS,
    ASK_ARRAY,
    ASK_NUMBER,
    DATA_TYPE_NAMES,
    DATA_TYPES,
    LAYOUT_TAGS,
    PLAIN_TAGS,
    QUERY_IMPL_INFO,
)
from dnnstack.backends.onednn.library import ExecArg, Library
from dnnstack.common.native import Owned

from .described_bytes import FIRST_HANDLE, Addresses, plain

ISAS = {"avx2": 7, "avx512_core_bf16": 231}
BYTES = {"bfloat16": 2, "float32": 4, "int32": 4, "int8": 1, "uint8": 1}
_ANY = LAYOUT_TAGS["any"]
_ARGUMENT_NAMES = {number: name for name, number in ARGUMENTS.items()}
# The order of axes of tags, the outermost first, where that is not theirs; and channels in a block.
_ORDERS = {LAYOUT_TAGS["ba"]: (1, 0), LAYOUT_TAGS["nhwc"]: (0, 2, 3, 1)}
_BLOCKS = {LAYOUT_TAGS["nChw16c"]: 16, LAYOUT_TAGS["nChw8c"]: 8}
# Of every kind of primitive which of its arguments are layouts, behind the engine.
_LAYOUTS = {
    "convolution_forward": (None, None, "src", "weights", "bias", "dst"),
    "convolution_backward_data": (None, "diff_src", "weights", "diff_dst"),
    "convolution_backward_weights": (None, "src", "diff_weights", "diff_bias", "diff_dst"),
    "inner_product_forward": (None, "src", "weights", "bias", "dst"),
    "inner_product_backward_data": ("diff_src", "weights", "diff_dst"),
    "inner_product_backward_weights": ("src", "diff_weights", "diff_bias", "diff_dst"),
    "matmul": ("src", "weights", "bias", "dst"),
    "eltwise_forward": (None, None, "src", "dst"),
    "eltwise_backward": (None, "diff_src", "diff_dst", "src"),
    "pooling_forward": (None, None, "src", "dst"),
    "pooling_backward": (None, "diff_src", "diff_dst"),
    "softmax_forward": (None, None, "src", "dst"),
    "softmax_backward": (None, "diff_src", "diff_dst", "dst"),
    "batch_normalization_forward": (None, "src", "dst"),
    "batch_normalization_backward": (None, "diff_src", "diff_dst", "src"),
    "lrn_forward": (None, None, "src", "dst"),
    "lrn_backward": (None, "diff_src", "diff_dst", "src"),
    "binary": (None, "src", "src_1", "dst"),
    "concat": ("dst",),
    "sum": ("dst",),
}


@dataclass(frozen=True)
class Layout:
    """A memory descriptor; ``of``: the whole that it is a part of, at ``begin``."""

    shape: tuple[int, ...]
    dtype: str
    tag: int
    of: Layout | None = None
    begin: tuple[int, ...] = ()

    @cached_property
    def block(self) -> int:
        return _BLOCKS.get(self.tag, 1)

    @cached_property
    def stored(self) -> tuple[int, ...]:
        """The shape with whole blocks of channels."""
        if self.block == 1:
            return self.shape
        n, c, *rest = self.shape
        return n, -(-c // self.block) * self.block, *rest

    @cached_property
    def strides(self) -> tuple[int, ...]:
        if self.of is not None:
            return self.of.strides
        sizes = list(self.stored)
        if self.block > 1:
            sizes[1] //= self.block
        order, step = _ORDERS.get(self.tag, range(len(sizes))), self.block
        steps = [0] * len(sizes)
        for axis in reversed(order):
            steps[axis], step = step, step * sizes[axis]
        return tuple(steps)

    @cached_property
    def nbytes(self) -> int:
        return prod(self.stored) * BYTES[self.dtype]

    def alike(self, other: Layout) -> bool:
        mine = [step for step, size in zip(self.strides, self.shape, strict=True) if size > 1]
        others = [step for step, size in zip(other.strides, other.shape, strict=True) if size > 1]
        same = (self.shape, self.dtype, self.block) == (other.shape, other.dtype, other.block)
        return same and mine == others

    def chosen(self) -> Layout:
        """What the library makes of a layout that it may choose."""
        if self.tag != _ANY:
            return self
        blocked = len(self.shape) == 4 and self.shape[0] % 8 == 0
        return replace(self, tag=LAYOUT_TAGS["nhwc"] if blocked else PLAIN_TAGS[len(self.shape)])

    def __str__(self) -> str:
        number = DATA_TYPES[self.dtype]
        names = {tag: name for name, tag in LAYOUT_TAGS.items()}
        name = names.get(self.tag, "plain")
        part = "" if self.of is None else f" at {self.begin} of {self.of}"
        return f"{DATA_TYPE_NAMES[number]} {name} {'x'.join(map(str, self.shape))}{part}"


class TapedOneDnn(Library):
    """The library, by its functions' names without ``dnnl_``; ``isa``: of ISAS."""

    def __init__(self, isa: str, threads: int) -> None:
        self.version, self.path = "3.2.0", "a stand-in"
        self.addresses = Addresses()
        self.objects: dict[int, Any] = {}
        self._chosen_isa, self._threads = isa, threads
        self.dll: Any = _Functions(self)
        self.execute = self.primitive_execute
        self.engine = Owned(self._made("engine"), id)
        self.stream = Owned(self._made("stream"), id, self.engine)
        self._kept: list[Any] = []

    def _isa(self) -> int:
        return ISAS[self._chosen_isa]

    def threads(self) -> int:
        return self._threads

    def set_threads(self, count: int) -> None:
        pass

    def call(self, name: str, *arguments: Any, shown: Any = None) -> None:
        found = getattr(self, name, None)
        if found is None:
            found = self._described if "append" in name or "set" in name else None
        if found is not None:
            found(*arguments)

    def create(self, function: str, *arguments: Any, shown: Any = None) -> int:
        if function.endswith("_primitive_desc_create"):
            return self._primitive_desc(function.removesuffix("_primitive_desc_create"), arguments)
        found = getattr(self, function, None)
        if found is not None:
            return self._made(found(*arguments))
        return self._made(f"{function.removesuffix('_create')}()")

    def destroyer(self, kind: str) -> Any:
        return id

    def text(self, value: Any) -> str:
        """An argument; handles stand for what was asked for."""
        if isinstance(value, C.Array) and value._type_ is C.c_int64:
            return "x".join(map(str, _without_zeros(value)))
        if isinstance(value, float):
            return str(C.c_float(value).value)
        return plain(value, self.addresses.place, self._known)

    def _known(self, handle: int) -> str | None:
        made = self.objects.get(handle)
        return None if made is None else str(made)

    def _made(self, thing: Any) -> int:
        handle = FIRST_HANDLE + len(self.objects)
        self.objects[handle] = thing
        return handle

    def _described(self, handle: int, *given: Any) -> None:
        shown = " ".join(map(self.text, given))
        self.objects[handle] = f"{self.objects[handle][:-1]}[{shown}])"

    # ------------------------------------------------------------ layouts

    def memory_desc_create_with_tag(self, count: int, dims: Any, dtype: int, tag: int) -> Layout:
        names = {number: name for name, number in DATA_TYPES.items()}
        return Layout(tuple(dims[:count]), names[dtype], tag)

    def memory_desc_clone(self, borrowed: int) -> Layout:
        found: Layout = self.objects[borrowed]
        return found

    def memory_desc_create_submemory(self, whole: int, dims: Any, offsets: Any) -> Layout:
        of: Layout = self.objects[whole]
        count = len(of.shape)
        return replace(of, shape=tuple(dims[:count]), of=of, begin=tuple(offsets[:count]))

    def memory_desc_query(self, handle: int, query: int, result: Any) -> None:
        layout: Layout = self.objects[handle]
        blocks = [layout.block] if layout.block > 1 else []
        asked = {
            ASK_NUMBER["ndims"]: len(layout.shape),
            ASK_NUMBER["data_type"]: DATA_TYPES[layout.dtype],
            ASK_NUMBER["inner_nblks"]: len(blocks),
            ASK_ARRAY["dims"]: layout.shape,
            ASK_ARRAY["strides"]: layout.strides,
            ASK_ARRAY["inner_blks"]: blocks,
            ASK_ARRAY["inner_idxs"]: [1] * len(blocks),
        }[query]
        if isinstance(asked, int):
            result._obj.value = asked
            return
        array = (C.c_int64 * max(1, len(asked)))(*asked)
        self._kept.append(array)
        C.pointer(result._obj)[0] = C.cast(array, C.POINTER(C.c_int64))

    # ------------------------------------------------------------ primitives

    def _primitive_desc(self, kind: str, arguments: Sequence[Any]) -> int:
        given = arguments if kind == "reorder" else arguments[1:]
        layouts: dict[str, Layout] = {}
        named = ("src", None, "dst") if kind == "reorder" else _LAYOUTS[kind]
        for name, value in zip(named, given, strict=False):
            if name is not None and value is not None:
                layouts[name] = self.objects[value].chosen()
        shown = ", ".join(map(self.text, given))
        return self._made(_Asked(f"{kind}({shown})", kind, layouts))

    def primitive_desc_query(self, handle: int, query: int, at: int, result: Any) -> None:
        assert query == QUERY_IMPL_INFO
        result._obj.value = b"jit:stand-in"

    def primitive_create(self, desc: int) -> Any:
        return self.objects[desc]

    def memory_create(self, desc: int, engine: int, place: int) -> Any:
        return _Place(place, self.objects[desc])

    def primitive_execute(self, primitive: Any, stream: Any, count: int, bound: Any) -> int:
        """Copies are made, as if layouts were alike."""
        asked = self.objects[primitive.value]
        if asked.kind == "reorder":
            ends = dict(self.bound(count, bound))
            size = min(ends["src"].layout.nbytes, ends["dst"].layout.nbytes)
            C.memmove(ends["dst"].pointer, ends["src"].pointer, size)
        return 0

    def bound(self, count: int, bound: Any) -> list[tuple[str, _Place]]:
        """The arguments of a call, by their names."""
        array = C.cast(bound, C.POINTER(ExecArg * count)).contents
        return [(_ARGUMENT_NAMES[each.arg], self.objects[each.memory]) for each in array]

    def called(self, call: Sequence[Any]) -> list[str]:
        """What a bound call asks for, and what it is given."""
        primitive, _, count, bound = call
        ends = [
            f"{name}={self.addresses.place(place.pointer) or 'elsewhere'} {place.layout}"
            for name, place in self.bound(count, bound)
        ]
        return [str(self.objects[primitive.value]), ", ".join(ends)]


@dataclass(frozen=True)
class _Asked:
    text: str
    kind: str
    layouts: dict[str, Layout]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class _Place:
    pointer: int
    layout: Layout


class _Functions:
    """What is called without a status."""

    def __init__(self, library: TapedOneDnn) -> None:
        self._library = library

    def dnnl_memory_desc_equal(self, one: int, other: int) -> int:
        objects = self._library.objects
        return int(objects[one].alike(objects[other]))

    def dnnl_memory_desc_get_size(self, handle: int) -> int:
        size: int = self._library.objects[handle].nbytes
        return size

    def dnnl_primitive_desc_query_md(self, handle: int, query: int, argument: int) -> int:
        asked = self._library.objects[handle]
        return self._library._made(_found(asked, _ARGUMENT_NAMES[argument]))


def _found(asked: _Asked, name: str) -> Layout:
    """The layout of an argument: given, or of what the library adds."""
    if name in asked.layouts:
        return asked.layouts[name]
    pictures = next(iter(asked.layouts.values()))
    if name in ("mean", "variance"):
        return Layout(pictures.shape[1:2], "float32", PLAIN_TAGS[1])
    size = 0 if name == "scratchpad" else prod(pictures.stored)
    return Layout((size,), "uint8", PLAIN_TAGS[1])


def _without_zeros(dims: Any) -> list[int]:
    """The numbers that were given: two at least, for strides and edges of pictures."""
    found = list(dims)
    while len(found) > 2 and not found[-1]:
        found.pop()
    return found
