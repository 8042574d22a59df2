"""Sums, concatenation along channels, dropout, their backward; blocked layouts stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from ...common import random
from ...common.errors import DnnlError
from ...graph.graph import Op, Shape, Tensor
from ...graph.ops import Add, Concat, Dropout, DropoutBackward, PadChannels, Slice
from .activations import activate_behind, post_ops
from .bind import BOTH, Binder, binds
from .constants import BINARY
from .memory import Descriptor, Memory
from .norm_add import add_unscaled
from .primitive import Attributes, NoFastKernel, first_fast, handles, reorder_desc, sum_arguments


@binds(Add, dtypes=BOTH)
def add(b: Binder, op: Add) -> None:
    """Two terms by a binary primitive, which takes an activation along; more by a sum."""
    if add_unscaled(b, op):
        return None
    post, count = post_ops(op, b.dtype), len(op.terms)
    layouts = _layouts(b, op.terms[0])
    if count == 2:
        kind, places = "binary", ["src", "src_1"]
        candidates: list[tuple[Any, ...]] = [
            (BINARY["add"], layout, layout, layout, post) for layout in layouts
        ]
    else:
        kind, places = "sum", [f"multiple_src_{at}" for at in range(count)]
        candidates = [sum_arguments(layout, count) for layout in layouts]
    desc = first_fast(kind, candidates, {"terms": count})
    layout = desc.descriptor("dst")
    terms = (
        sorted(op.terms, key=lambda term: not _free(b, term, layout)) if count == 2 else op.terms
    )
    memories = {at: b.want(term, layout) for at, term in zip(places, terms, strict=True)}
    if count == 2 and _free(b, terms[0], layout):
        # In place it touches a quarter less memory.
        b.overwritten.add(terms[0])
        memories["dst"] = memories["src"].view(layout)
        b.alias(op.y, memories["dst"])
    else:
        memories["dst"] = b.output(op.y, layout)
    b.primitive(op, desc, memories, {"post_op": op.activation} if post is not None else {})
    return activate_behind(b, op, memories["dst"])


def _free(b: Binder, term: Tensor, layout: Descriptor) -> bool:
    """Whether the sum may be written over a term, which is laid out like it."""
    return b.source(term).descriptor == layout and b.may_overwrite(term)


@binds(Concat, dtypes=BOTH)
def concat(b: Binder, op: Concat) -> None:
    _join(b, op, op.parts)


@binds(PadChannels, dtypes=BOTH)
def pad_channels(b: Binder, op: PadChannels) -> None:
    """Concatenation with channels of zeros, which stay as they are."""
    n, channels, *rest = op.y.shape
    zeros = (n, channels - op.x.shape[1], *rest)
    _join(b, op, [op.x], [zeros])


def _join(
    b: Binder, op: Concat | PadChannels, parts: Sequence[Tensor], zeros: Sequence[Shape] = ()
) -> None:
    """In the first layout that has a fast kernel: the parts, and behind them zeros."""
    for name in _names(b, parts[0]):
        # The array holds their handles alone, so they must live until the library has read it.
        layouts = [b.layout(shape, name) for shape in (*(part.shape for part in parts), *zeros)]
        arguments = (b.layout(op.y.shape, name), len(layouts), 1, handles(layouts), None)
        with suppress(NoFastKernel):
            desc = first_fast("concat", [arguments], {"parts": len(layouts)})
            memories = [b.want(*each) for each in zip(parts, layouts, strict=False)]
            memories += [b.constant(layout, 0.0) for layout in layouts[len(parts) :]]
            sources = {f"multiple_src_{at}": each for at, each in enumerate(memories)}
            target = b.output(op.y, desc.descriptor("dst"))
            return b.primitive(op, desc, {**sources, "dst": target}, {"axis": 1})
    raise NoFastKernel


@binds(Slice, dtypes=BOTH)
def slice_channels(b: Binder, op: Slice) -> None:
    """A copy out of a part of the tensor."""
    offsets = (0, op.begin, *[0] * (len(op.x.shape) - 2))
    for name in _names(b, op.x):
        layout = b.layout(op.x.shape, name)
        try:
            part = layout.part(op.y.shape, offsets)
        except DnnlError:
            # It would cut through a block of channels.
            continue
        source = b.want(op.x, layout).view(part)
        target = b.output(op.y, b.layout(op.y.shape, name))
        desc = reorder_desc(part, target.descriptor)
        return b.primitive(op, desc, {"src": source, "dst": target}, {"begin": op.begin})
    raise NoFastKernel


def _names(b: Binder, tensor: Tensor) -> tuple[str, ...]:
    """The layouts to try: the one that the tensor has, then those that fit any channels."""
    if len(tensor.shape) != 4:
        return ("plain",)
    known = b.source(tensor).descriptor
    if len(known.shape) != 4:
        return ("nhwc", "plain")
    all_names = ("nChw16c", "nChw8c", "nhwc", "plain")
    own = [name for name in all_names if b.layout(tensor.shape, name) == known]
    return tuple(dict.fromkeys((*own[:1], "nhwc", "plain")))


def _layouts(b: Binder, tensor: Tensor) -> list[Descriptor]:
    known = b.source(tensor).descriptor
    plain = b.layout(tensor.shape)
    return [known, plain] if len(known.shape) == len(tensor.shape) else [plain]


@binds(Dropout, dtypes=BOTH)
def dropout(b: Binder, op: Dropout) -> None:
    mask = np.zeros((prod(op.x.shape) // op.alike, op.alike), np.uint8)
    drawn = mask.reshape(-1) if op.alike == 1 else np.zeros(len(mask), np.uint8)
    key, threshold, parts = random.Key(*op.key), op.threshold, op.parts
    step = b.array(op.step)
    b.arrays[op.mask] = mask.reshape(op.x.shape)

    def draw() -> None:
        turn, part = divmod(int(step[0]), parts)
        random.at_least(key, turn, threshold, drawn, first=part * len(drawn))
        if op.alike > 1:
            mask[...] = drawn[:, None]

    b.host(op, draw, "philox", {"mask": f"u8 {'x'.join(map(str, op.x.shape))}"})
    _multiply(b, op, op.x, op.mask, op.y, op.scale)


@binds(DropoutBackward, dtypes=BOTH)
def dropout_backward(b: Binder, op: DropoutBackward) -> None:
    _multiply(b, op, op.dy, op.mask, op.dx, op.scale)


def _multiply(b: Binder, op: Op, x: Tensor, mask: Tensor, y: Tensor, scale: float) -> None:
    """y = scale x mask in row-major order, in which the mask was drawn."""
    layout = b.layout(x.shape)
    chosen = Descriptor.of(x.shape, "plain", "uint8")
    arguments = (BINARY["mul"], layout, chosen, layout, Attributes(scales=("src",)))
    desc = first_fast("binary", [arguments], {"src": layout})
    factor = b.constant(Descriptor.of((1,)), scale)
    memories = {
        "src": b.want(x, layout),
        "src_1": Memory(chosen, b.array(mask).reshape(-1).view(np.uint8)),
        "dst": b.output(y, layout),
        "scale_src": factor,
    }
    b.primitive(op, desc, memories, {"scale": scale})
