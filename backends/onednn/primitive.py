"""Primitives: a descriptor that chose an implementation, and a call with all arguments bound."""

from __future__ import annotations

import ctypes as C
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from ctypes import Array, byref, c_char_p, c_float, c_void_p
from typing import Any

from ...common.errors import DnnlError
from ...common.native import Owned
from ...common.records import dataclass
from ...graph.graph import Graph
from ..base import BoundCall
from .constants import (
    ARGUMENTS,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    QUERY_EXEC_ARG_MD,
    QUERY_IMPL_INFO,
    SCRATCHPAD_USER,
)
from .library import ExecArg, library
from .memory import Descriptor, Memory

Link = tuple[int, float, float] | tuple[int, Descriptor] | tuple[float]


class Attributes(Owned):
    """dnnl_primitive_attr_t: run-time scales of arguments, then post-operations in this order.

    ``scales``: the arguments that have one, or by name the mask of the axes that have many.

    ``chain``, one after the other: elementwise
    (algorithm, alpha, beta), binary (algorithm, descriptor) with a second source, or (scale,), to
    which scale * dst is added. ``own_scratchpad``: the scratchpad is an argument of the call, not
    memory of the library's.
    """

    def __init__(
        self,
        scales: Sequence[str] | Mapping[str, int] = (),
        chain: Sequence[Link] = (),
        own_scratchpad: bool = False,
    ) -> None:
        lib = library()
        super().__init__(lib.create("primitive_attr_create"), lib.destroyer("primitive_attr"))
        masks = scales if isinstance(scales, Mapping) else dict.fromkeys(scales, 0)
        for name, mask in masks.items():
            lib.call("primitive_attr_set_scales_mask", self.handle, ARGUMENTS[name], mask)
        if own_scratchpad:
            lib.call("primitive_attr_set_scratchpad_mode", self.handle, SCRATCHPAD_USER)
        post = Owned(lib.create("post_ops_create"), lib.destroyer("post_ops"))
        for each in chain:
            if len(each) == 1:
                lib.call("post_ops_append_sum", post.handle, each[0], 0, 0)
            elif len(each) == 2:
                lib.call("post_ops_append_binary", post.handle, each[0], each[1].handle)
            else:
                lib.call("post_ops_append_eltwise", post.handle, *each)
        lib.call("primitive_attr_set_post_ops", self.handle, post.handle)
        post.close()


class PrimitiveDesc(Owned):
    """dnnl_primitive_desc_t by dnnl_<kind>_primitive_desc_create(engine, *arguments).

    Raises DnnlError, with ``shown``, for a geometry or mix of layouts that oneDNN does not have.
    """

    def __init__(
        self, kind: str, *arguments: Any, shown: Mapping[str, object] | None = None
    ) -> None:
        self.kind = kind
        lib = library()
        # A reorder names the engines of both sides itself.
        leading = () if kind == "reorder" else (lib.engine.handle,)
        handle = lib.create(
            f"{kind}_primitive_desc_create",
            *leading,
            *[a.handle if isinstance(a, Owned) else a for a in arguments],
            shown=shown,
        )
        super().__init__(handle, lib.destroyer("primitive_desc"))

    @property
    def implementation(self) -> str:
        """The library's name of it."""
        name = c_char_p()
        library().call("primitive_desc_query", self.handle, QUERY_IMPL_INFO, 0, byref(name))
        return (name.value or b"").decode()

    def advance(self) -> bool:
        """Take the library's next implementation for the same arguments; False if none is left."""
        return not library().dll.dnnl_primitive_desc_next_impl(self.handle)

    @property
    def is_reference(self) -> bool:
        """Whether oneDNN has only its slow reference code for this."""
        return self.implementation.startswith("ref")

    def descriptor(self, argument: str) -> Descriptor:
        """The layout that the implementation wants for an argument."""
        borrowed = library().dll.dnnl_primitive_desc_query_md(
            self.handle, QUERY_EXEC_ARG_MD, ARGUMENTS[argument]
        )
        return Descriptor.clone(borrowed)


class Primitive(Owned):
    """dnnl_primitive_t with its arguments bound: ``call`` is what dnnl_primitive_execute takes."""

    def __init__(self, desc: PrimitiveDesc, arguments: Mapping[str, Memory]) -> None:
        handle = library().create("primitive_create", desc.handle)
        self.implementation = desc.implementation
        self.function = f"dnnl_{desc.kind}"
        self.arguments = dict(arguments)
        bound = (ExecArg * len(arguments))(
            *[ExecArg(ARGUMENTS[name], memory.handle) for name, memory in arguments.items()]
        )
        super().__init__(handle, library().destroyer("primitive"), *arguments.values(), bound)
        self.call = (
            c_void_p(handle),
            c_void_p(library().stream.handle),
            len(arguments),
            C.cast(bound, c_void_p),
        )

    def shown(self) -> dict[str, str]:
        """Every argument with its type, layout and shape."""
        return {
            name.removeprefix("multiple_"): str(memory.descriptor)
            for name, memory in self.arguments.items()
        }


class NoFastKernel(Exception):
    """Raised in a binding function: NumPy's kernel is to be bound instead."""


def first_fast(
    kind: str, candidates: Iterable[tuple[Any, ...]], shown: Mapping[str, object]
) -> PrimitiveDesc:
    """Of the first arguments for which oneDNN has more than reference code.

    Raises NoFastKernel if it has for none.
    """
    for arguments in candidates:
        with suppress(DnnlError):
            desc = PrimitiveDesc(kind, *arguments, shown=shown)
            if not desc.is_reference:
                return desc
    raise NoFastKernel


def forward_kind(graph: Graph) -> int:
    """Whether a section trains, as the library asks for it."""
    trains = any(o.phase in ("backward", "update") for op in graph.ops for o in op.origin)
    return FORWARD_TRAINING if trains else FORWARD_INFERENCE


def handles(descriptors: Sequence[Descriptor]) -> Array[c_void_p]:
    """Theirs alone: the descriptors must live until the library has read them."""
    return (c_void_p * len(descriptors))(*[each.handle for each in descriptors])


def sum_arguments(layout: Descriptor, count: int) -> tuple[Any, ...]:
    """Those of the descriptor of a sum of so many terms."""
    scales = (c_float * count)(*[1.0] * count)
    return layout, count, scales, handles([layout] * count), None


@dataclass(frozen=True)
class Step:
    """One entry of an executable's list: ``function(*arguments)`` returns a dnnl status or None.

    ``of_samples``: the same primitive for so many samples, if it treats each alike. Raises
    NoFastKernel.
    """

    function: Callable[..., int | None]
    arguments: tuple[Any, ...]
    call: BoundCall
    primitive: Primitive | None = None
    of_samples: Callable[[int], PrimitiveDesc] | None = None


def reorder_desc(
    source: Descriptor, target: Descriptor, attributes: Attributes | None = None
) -> PrimitiveDesc:
    """A copy from one layout or type to another."""
    engine = library().engine
    return PrimitiveDesc("reorder", source, engine, target, engine, attributes)


def copy(source: Memory, target: Memory) -> None:
    """Copy now, converting the layout."""
    primitive = Primitive(
        reorder_desc(source.descriptor, target.descriptor), {"src": source, "dst": target}
    )
    status = library().execute(*primitive.call)
    library().call("stream_wait", library().stream.handle)
    if status:
        library().call("primitive_execute", *primitive.call, shown=primitive.shown())
