"""Dense layers: inner products, their gradients, and the sums of these; biases of any layer, and
pictures unrolled to rows of windows.

NumPy unrolls by a gather with indices worked out beforehand. A window of a single pixel needs
neither: rows of pixels are the layout NHWC under another shape.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...graph.geometry import Window
from ...graph.graph import Shape
from ...graph.ops import BatchMatMul, BiasAdd, BiasGrad, Col2im, Im2col, MatMul
from .activations import activate_behind, post_ops
from .bind import BOTH, Binder, binds
from .constants import BINARY, ELTWISE_LINEAR, FORWARD_TRAINING
from .memory import Descriptor, Memory, channel_shape
from .primitive import (
    Attributes,
    NoFastKernel,
    PrimitiveDesc,
    first_fast,
    forward_kind,
    sum_arguments,
)
from .sums import sum_into

SHORT_ROWS = 256


def _rows(*shape: int, dtype: str = "float32") -> Descriptor:
    return Descriptor.of(shape, "plain", dtype)


def _inner_forward(
    sizes: tuple[int, int, int],
    types: tuple[str, str],
    prop: int = FORWARD_TRAINING,
    bias: bool = False,
    post: Attributes | None = None,
) -> PrimitiveDesc:
    """``sizes``: rows, units and inputs. ``types``: of source and weights; of the destination."""
    (rows, units, inputs), (dtype, written) = sizes, types
    source, target = _rows(rows, inputs, dtype=dtype), _rows(rows, units, dtype=written)
    weights = Descriptor.of((units, inputs), "any", dtype)
    arguments = (prop, source, weights, _rows(units) if bias else None, target, post)
    shown = {"M": rows, "N": units, "K": inputs}
    return first_fast("inner_product_forward", [arguments], shown)


def weight_gradient_desc(op: MatMul, dtype: str) -> PrimitiveDesc:
    """The weight gradient's primitive: its layout of the weights is the parameters' layout.

    The gradient is float32, whatever the type of the factors. Raises NoFastKernel.
    """
    rows, units = short_rows(op, dtype), op.a.shape[1]
    inputs = op.b.shape[1]
    hint = _inner_forward((rows, units, inputs), (dtype, dtype), bias=True)
    weights = Descriptor.of((units, inputs), "any")
    bias = _rows(units) if op.bias_grad is not None and dtype != "float32" else None
    x, dy = _rows(rows, inputs, dtype=dtype), _rows(rows, units, dtype=dtype)
    arguments = (x, weights, bias, dy, hint, None)
    return first_fast("inner_product_backward_weights", [arguments], _mnk(op))


def _mnk(op: MatMul) -> dict[str, object]:
    m, n, k = op.mnk
    shown: dict[str, object] = {"M": m, "N": n, "K": k}
    if op.activation is not None:
        shown["post_op"] = op.activation
    return shown


@binds(MatMul, dtypes=BOTH)
def matmul(b: Binder, op: MatMul) -> None:
    """Forward, data gradient or weight gradient of a dense layer, as an inner product."""
    if op.transpose_a and not op.transpose_b and op.bias is None and op.activation is None:
        return _weight_gradient(b, op)
    if op.bias_grad is not None or op.transpose_a:
        raise NoFastKernel
    m, n, k = op.mnk
    written = b.written_type(op.c)
    if op.transpose_b:
        prop, bias, post = forward_kind(b.graph), op.bias is not None, post_ops(op, written)
        desc = _inner_forward(op.mnk, (b.dtype, written), prop, bias, post)
        source, target = "src", "dst"
    elif op.bias is None and op.activation is None:
        hint = _inner_forward((m, k, n), (b.dtype, b.dtype))
        dx, dy = _rows(m, n, dtype=written), _rows(m, k, dtype=b.dtype)
        arguments = (dx, b.layout((k, n), "any"), dy, hint, None)
        desc = first_fast("inner_product_backward_data", [arguments], _mnk(op))
        source, target = "diff_dst", "diff_src"
    else:
        raise NoFastKernel
    further = {"bias": None if op.bias is None else b.home(op.bias)}
    inputs = {source: op.a, "weights": op.b}
    memories = b.tensors(op, desc, inputs, {target: op.c}, _mnk(op), further)
    return activate_behind(b, op, memories[target])


def short_rows(op: MatMul, dtype: str) -> int:
    """The samples that a weight gradient in float32 adds up at a time: a part of the batch."""
    rows = op.a.shape[0]
    if dtype != "float32" or rows <= 2 * SHORT_ROWS:
        return rows
    parts = range(SHORT_ROWS, SHORT_ROWS // 4, -1)
    return next((part for part in parts if rows % part == 0), rows)


def _weight_gradient(b: Binder, op: MatMul) -> None:
    desc = weight_gradient_desc(op, b.dtype)
    x, dy = b.want(op.b, b.layout(op.b.shape)), b.want(op.a, b.layout(op.a.shape))
    layout = desc.descriptor("diff_weights")
    result = b.output(op.c, layout)
    rows, each = op.a.shape[0], short_rows(op, b.dtype)
    parts = [result] if each == rows else [b.scratch(layout) for _ in range(rows // each)]
    for at, part in enumerate(parts):
        memories = {
            "src": _piece(x, desc.descriptor("src"), at),
            "diff_dst": _piece(dy, desc.descriptor("diff_dst"), at),
            "diff_weights": part,
        }
        if op.bias_grad is not None and b.dtype != "float32":
            memories["diff_bias"] = b.output(op.bias_grad)
        b.primitive(op, desc, memories, _mnk(op))
    if len(parts) > 1:
        total = PrimitiveDesc("sum", *sum_arguments(layout, len(parts)))
        sources = {f"multiple_src_{at}": part for at, part in enumerate(parts)}
        b.primitive(op, total, {**sources, "dst": result})
    if op.bias_grad is not None and b.dtype == "float32":
        sum_into(b, op, dy, b.output(op.bias_grad))


def _piece(memory: Memory, layout: Descriptor, at: int) -> Memory:
    """The at-th rows of a row-major memory."""
    return Memory(layout, memory.buffer[at * layout.nbytes : (at + 1) * layout.nbytes])


@binds(BatchMatMul)
def batch_matmul(b: Binder, op: BatchMatMul) -> None:
    count, (m, n, k) = op.a.shape[0], op.mnk
    layouts = [
        Descriptor.of((count, *sides), "acb" if turned else "plain")
        for sides, turned in (((m, k), op.transpose_a), ((k, n), op.transpose_b))
    ]
    times = Attributes(chain=((ELTWISE_LINEAR, op.factor, 0.0),)) if op.factor != 1.0 else None
    shown: dict[str, object] = {"batch": count, "M": m, "N": n, "K": k}
    desc = first_fast("matmul", [(*layouts, None, Descriptor.of(op.c.shape), times)], shown)
    a, right = (b.plain(t).view(each) for t, each in zip((op.a, op.b), layouts, strict=True))
    b.primitive(op, desc, {"src": a, "weights": right, "dst": b.output(op.c)}, shown)


@binds(BiasAdd, dtypes=BOTH)
def bias_add(b: Binder, op: BiasAdd) -> None:
    spread = Descriptor.of(channel_shape(op.x))
    if op.x.shape == spread.shape:
        # In bfloat16 oneDNN 3.2 adds two of one shape in different layouts by a gather under a mask
        # that it has not set: only what an earlier call left in that register is added.
        layouts = [b.layout(op.x.shape)]
    else:
        layouts = [b.source(op.x).descriptor]
        layouts += [b.layout(op.x.shape, tag) for tag in ("nhwc", "nchw") if len(op.x.shape) == 4]
    candidates = [(BINARY["add"], layout, spread, layout, None) for layout in layouts]
    desc = first_fast("binary", candidates, {"src": layouts[0]})
    layout = desc.descriptor("src")
    memories = {
        "src": b.want(op.x, layout),
        "src_1": b.home(op.b).view(spread),
        "dst": b.output(op.y, layout),
    }
    b.primitive(op, desc, memories)


@binds(BiasGrad, dtypes=BOTH)
def bias_grad(b: Binder, op: BiasGrad) -> None:
    """db = 1^T dy: in bfloat16 a product with a row of ones over dy as (N H W, C)."""
    if b.dtype == "float32":
        return sum_into(b, op, b.home(op.dy), b.output(op.db))
    channels = op.dy.shape[1]
    rows = op.dy.size // channels
    layout = "nhwc" if len(op.dy.shape) == 4 else "plain"
    ones, target = b.layout((1, rows)), Descriptor.of((1, channels))
    matrix = b.layout((rows, channels))
    shown = {"M": 1, "N": channels, "K": rows}
    desc = first_fast("matmul", [(ones, matrix, None, target, None)], shown)
    memories = {
        "src": b.constant(ones, 1.0),
        "weights": b.want(op.dy, b.layout(op.dy.shape, layout)).view(matrix),
        "dst": b.output(op.db).view(target),
    }
    return b.primitive(op, desc, memories, shown)


@binds(Im2col)
def im2col(b: Binder, op: Im2col) -> None:
    n, c, h, w = op.x.shape
    if op.window == Window((1, 1)):
        last = b.want(op.x, Descriptor.of(op.x.shape, "nhwc"))
        return b.alias(op.columns, last.view(Descriptor.of(op.columns.shape)))
    places = gather_indices((c, h, w), op.window)
    x = b.plain(op.x).array((n, c * h * w))
    columns = b.output(op.columns).array((n, places.size))
    # One more than the pixels: the zero that stands for all outside the picture.
    pixels = b.scratch_array((n, c * h * w + 1))

    def gather() -> None:
        pixels[:, :-1], pixels[:, -1] = x, 0.0
        pixels.take(places, axis=1, out=columns, mode="clip")

    return b.host(op, gather, "take", {"window": str(op.window)})


@binds(Col2im)
def col2im(b: Binder, op: Col2im) -> None:
    if op.window != Window((1, 1)):
        raise NoFastKernel
    layout = Descriptor.of(op.x.shape, "nhwc")
    b.alias(op.x, b.plain(op.columns).view(layout))


def gather_indices(picture: Shape, window: Window) -> NDArray[np.intp]:
    """Where each number of a picture's columns comes from, C H W for zero: (P Q C kh kw,)."""
    c, h, w = picture
    top, _, left, _ = window.padding
    rows, across = window.output(h, w)
    (down, right), (dy, dx) = window.stride, window.dilation
    y = np.arange(rows)[:, None] * down + np.arange(window.kernel[0]) * dy - top
    x = np.arange(across)[:, None] * right + np.arange(window.kernel[1]) * dx - left
    # Axes: p, q, c, i, j.
    y, x = y[:, None, None, :, None], x[None, :, None, None, :]
    inside = (y >= 0) & (y < h) & (x >= 0) & (x < w)
    place = np.arange(c)[None, None, :, None, None] * (h * w) + y * w + x
    return np.where(inside, place, c * h * w).ravel()
