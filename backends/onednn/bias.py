"""Biases that no convolution or product takes along, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.ops import BiasAdd, BiasGrad
from .bind import Binder, attempt, binds, channel_shape
from .constants import BINARY_ADD, DST, SRC, SRC_1, WEIGHTS
from .fallback import reference
from .memory import Descriptor
from .sums import sum_into


@binds(BiasAdd, narrow=True)
def bias_add(b: Binder, op: BiasAdd) -> None:
    spread = Descriptor.of(channel_shape(op.x))

    def candidate(layout: Descriptor) -> Callable[[], tuple[Any, ...]]:
        return lambda: (BINARY_ADD, layout, spread, layout, None)

    if op.x.shape == spread.shape:
        # In bfloat16 oneDNN 3.2 adds two of one shape in different layouts by a gather under a mask
        # that it has not set: only what an earlier call left in that register is added.
        layouts = [b.layout(op.x.shape)]
    else:
        layouts = [b.source(op.x).descriptor]
        layouts += [b.layout(op.x.shape, tag) for tag in ("nhwc", "nchw") if len(op.x.shape) == 4]
    desc = attempt("binary", [candidate(layout) for layout in layouts], {"src": layouts[0]})
    if desc is None:
        return reference(b, op)
    layout = desc.descriptor(SRC)
    memories = {
        SRC: b.want(op.x, layout),
        SRC_1: b.home(op.b).view(spread),
        DST: b.output(op.y, layout),
    }
    return b.primitive(op, desc, memories)


@binds(BiasGrad, narrow=True)
def bias_grad(b: Binder, op: BiasGrad) -> None:
    """db = 1^T dy: in bfloat16 a product with a row of ones over dy as (N H W, C)."""
    if b.dtype == "float32":
        return sum_into(b, op, b.home(op.dy), b.output(op.db, Descriptor.of(op.db.shape)))
    channels = op.dy.shape[1]
    rows = op.dy.size // channels
    layout = "nhwc" if len(op.dy.shape) == 4 else "plain"
    ones, target = b.layout((1, rows)), Descriptor.of((1, channels))
    matrix = b.layout((rows, channels))
    arguments = (ones, matrix, None, target, None)
    desc = attempt("matmul", [lambda: arguments], {"M": 1, "N": channels, "K": rows})
    if desc is None:
        return reference(b, op)
    memories = {
        SRC: b.constant(ones, 1.0),
        WEIGHTS: b.want(op.dy, b.layout(op.dy.shape, layout)).view(matrix),
        DST: b.output(op.db, Descriptor.of(op.db.shape)).view(target),
    }
    return b.primitive(op, desc, memories, {"M": 1, "N": channels, "K": rows})
