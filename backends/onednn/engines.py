"""Every implementation that oneDNN has for a convolution, each in the layouts that it prefers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial

from ...common.errors import DnnlError
from ...graph.ops import Conv2d
from ..base import Array, Engine
from ..reference.backend import TRIAL, fastest
from .constants import CONVOLUTION_DIRECT, CONVOLUTION_WINOGRAD, FORWARD_INFERENCE
from .convolution import operands, slide
from .library import library
from .memory import Memory
from .primitive import Attributes, Primitive, PrimitiveDesc, copy


def engines(op: Conv2d, x: Array, w: Array) -> Iterator[Engine]:
    """The direct ones in the library's order, then those by Winograd's algorithm."""
    given = operands(op, "any", ("float32",) * 3, False)
    for algorithm in (CONVOLUTION_DIRECT, CONVOLUTION_WINOGRAD):
        how = (FORWARD_INFERENCE, algorithm, *given, *slide(op), Attributes(own_scratchpad=True))
        flops = op.flops() if algorithm == CONVOLUTION_DIRECT else None
        with suppress(DnnlError):
            desc = PrimitiveDesc("convolution_forward", *how)
            more = True
            while more:
                yield _engine(op, desc, x, w, flops)
                more = desc.advance()


def _engine(op: Conv2d, desc: PrimitiveDesc, x: Array, w: Array, flops: int | None) -> Engine:
    names = ("src", "weights", "dst", "scratchpad")
    memories = {name: Memory(desc.descriptor(name)) for name in names}
    for name, array in (("src", x), ("weights", w)):
        source = Memory.plain(memories[name].descriptor.shape)
        source.array()[...] = array.ravel()
        copy(source, memories[name])
    primitive = Primitive(desc, memories)

    def run() -> Array:
        library().call("primitive_execute", *primitive.call)
        found = Memory.plain(op.y.shape)
        copy(memories["dst"], found)
        return found.array(op.y.shape)

    size = memories["scratchpad"].descriptor.nbytes
    seconds = partial(fastest, partial(library().execute, *primitive.call), TRIAL)
    layouts = tuple(str(memories[name].descriptor).split()[1] for name in names[:3])
    return Engine("oneDNN", desc.implementation, layouts, flops, size, run, seconds)
