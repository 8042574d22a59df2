"""Sums, multiples, concatenation along channels and dropout, in whatever layout the pictures lie.

Dropout draws the words that common/random.py draws: elements are counted over (N, C, H, W), so the
masks are those of every other backend. cuDNN's dropout has a generator of its own.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import NamedTuple

import numpy as np

from ....graph import ops
from ....graph.graph import Op, Tensor
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..binding.launch_list import Varying
from ..binding.wide import inner, kind_of, row
from ..libraries.kernels import f32, i64
from ..libraries.layout import Layout, ceil_div, plain


def _common(b: Binder, tensors: tuple[Tensor, ...], y: Tensor) -> Layout:
    """One layout for all: a gradient's is planned; else that of the first channels-last picture."""
    planned = b.planned(y)
    if planned is not None:
        return planned
    homes = [b.home(tensor).layout for tensor in tensors]
    chosen = next((home for home in homes if home.nhwc), homes[0])
    return replace(chosen, dtype=b.number(y))


@binds(ops.Add)
def add(b: Binder, op: ops.Add) -> None:
    layout = _common(b, op.terms, op.y)
    terms, y = [b.want(term, layout) for term in op.terms], b.output(op.y, layout)
    shown = {"terms": len(terms), "activation": op.activation or "none"}
    if len(terms) == 2 and op.activation in (None, "relu") and layout.size % 4 == 0:
        fours = layout.size // 4
        two = (*terms, y, np.uint32(fours), op.activation == "relu")
        return b.kernel(op, ("combine.cu", "add_two", y.dtype), fours, two, shown)
    pointers = b.numbers(*(term.pointer for term in terms), dtype="uint64")
    check = op.activation in ops.RAISED and layout.shape != layout.stored
    where = (1, 1) if len(layout.shape) == 1 else row(layout)
    f = (kind_of(op.activation), f32(op.activation_alpha), check)
    arguments = (pointers, len(terms), y, i64(layout.size), *f, *where, inner(layout))
    # A thread for each four numbers of y.
    kernel = ("combine.cu", "add_terms", y.dtype)
    return b.kernel(op, kernel, ceil_div(layout.size, 4), arguments, shown)


@binds(ops.Scale)
def scale(b: Binder, op: ops.Scale) -> None:
    layout = _common(b, (op.x,), op.y)
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    arguments = (x, y, i64(layout.size), f32(op.factor))
    kernel = ("combine.cu", "scale", y.dtype)
    b.kernel(op, kernel, ceil_div(layout.size, 4), arguments, {"factor": op.factor})


def _side_by_side(b: Binder, tensor: Tensor, dtype: str) -> Layout:
    """As the tensor lies, where that is as pictures lie here and no flattened picture."""
    held, rules = b.home(tensor).layout, b.geometry
    if held.picture is not None or (len(tensor.shape) == 4 and held.nhwc != rules.nhwc):
        return _new(b, tensor, dtype)
    return replace(held, dtype=dtype)


def _new(b: Binder, tensor: Tensor, dtype: str) -> Layout:
    if len(tensor.shape) == 4:
        return b.geometry.picture(tensor.shape, dtype)
    if len(tensor.shape) == 2:
        return b.geometry.rows(tensor.shape, dtype)
    return plain(tensor.shape, dtype)


def _rows(
    b: Binder,
    op: Op,
    source: Tensor,
    target: Buffer,
    count: int,
    begins: tuple[int, int] = (0, 0),
    wide: int | None = None,
) -> None:
    """Copy this many channels of the source, in fours if possible, and zeros behind them.

    begins: the first channel of the source, and of the target; ``wide``: channels that are written.
    """
    a, y = _side_by_side(b, source, target.layout.dtype), target.layout
    near = b.want(source, a)
    # Of NCHW, the rows are samples, and a channel is as many neighbours as there are pixels.
    unit = inner(a)
    xs, ys = a.columns * unit, y.columns * unit
    rows = a.size // xs
    written = count if wide is None else wide
    numbers = [count * unit, written * unit, xs, ys, *(begin * unit for begin in begins)]
    name = "copy_columns"
    if all(number % 4 == 0 for number in numbers):
        name, numbers = "copy_fours", [number // 4 for number in numbers]
    arguments = (near, target, *map(np.uint32, (rows, *numbers[:2])), *numbers[2:])
    shown = {"from": source.name, "channels": count}
    b.kernel(op, ("combine.cu", name, target.dtype), rows * numbers[1], arguments, shown)


@binds(ops.Concat)
def concat(b: Binder, op: ops.Concat) -> None:
    y = b.output(op.y, _new(b, op.y, b.number(op.y)))
    begin = 0
    for part in op.parts:
        _rows(b, op, part, y, part.shape[1], (0, begin))
        begin += part.shape[1]


@binds(ops.Slice)
def slice_channels(b: Binder, op: ops.Slice) -> None:
    y = b.output(op.y, _new(b, op.y, b.number(op.y)))
    _rows(b, op, op.x, y, op.y.shape[1], (op.begin, 0))


@binds(ops.PadChannels)
def pad_channels(b: Binder, op: ops.PadChannels) -> None:
    y = b.output(op.y, _new(b, op.y, b.number(op.y)))
    _rows(b, op, op.x, y, op.x.shape[1], wide=y.layout.columns)


class _Places(NamedTuple):
    """Where the elements of (N, C, H, W) lie: struct Places of combine.cu."""

    each: int
    row: int
    channels: int
    pixels: int

    @classmethod
    def of(cls, layout: Layout) -> _Places:
        each, sizes = layout.size // layout.shape[0], layout.picture or layout.shape[1:]
        if layout.picture is None and not layout.nhwc:
            return cls(each, each, prod(sizes), 1)
        stored = layout.columns if layout.nhwc else sizes[0]
        return cls(each, stored, sizes[0], prod(sizes[1:]))


@binds(ops.Dropout)
def dropout(b: Binder, op: ops.Dropout) -> None:
    layout = _common(b, (op.x,), op.y)
    if not layout.nhwc and layout.picture is None and len(layout.shape) != 2:
        # Only these are stored with padding in another place than a row's end.
        layout = plain(op.x.shape, layout.dtype)
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    mask = b.output(op.mask, replace(layout, dtype="uint8"))
    places = _Places.of(layout)
    live = b.live.add(op, ("key",))
    words = (
        Varying(live, lambda op: np.uint32(op.key[0])),
        Varying(live, lambda op: np.uint32(op.key[1])),
    )
    rule = (*words, np.uint32(op.threshold), f32(op.scale))
    squares = op.alike == 1 and layout.nhwc and places.row % 4 == 0 and places.pixels % 4 == 0
    size = layout.size // 16 if squares else ceil_div(layout.size, 4)
    count = np.uint32(size if squares else layout.size)
    how = layout.shape[0] if squares else np.uint32(op.alike)
    begin = (x, y, mask, count, b.numbers(*places), op.step, op.parts)
    kernel = ("combine.cu", "dropout_squares" if squares else "dropout", y.dtype)
    b.kernel(op, kernel, size, (*begin, how, *rule), {"scale": op.scale})


@binds(ops.DropoutBackward)
def dropout_backward(b: Binder, op: ops.DropoutBackward) -> None:
    mask = b.home(op.mask)
    layout = replace(mask.layout, dtype=b.number(op.dx))
    dy, dx = b.want(op.dy, layout), b.output(op.dx, layout)
    arguments = (dy, mask, dx, i64(layout.size), f32(op.scale))
    kernel = ("combine.cu", "dropout_backward", dx.dtype)
    b.kernel(op, kernel, ceil_div(layout.size, 4), arguments, {"scale": op.scale})
