"""Biases that no convolution or product takes along, and their gradients."""

from __future__ import annotations

from ...graph.ops import BiasAdd, BiasGrad
from .bind import BOTH, Binder, binds
from .constants import BINARY_ADD
from .memory import Descriptor, channel_shape
from .primitive import first_fast, needed
from .sums import sum_into


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
    candidates = [(BINARY_ADD, layout, spread, layout, None) for layout in layouts]
    desc = needed(first_fast("binary", candidates, {"src": layouts[0]}))
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
    desc = needed(first_fast("matmul", [(ones, matrix, None, target, None)], shown))
    memories = {
        "src": b.constant(ones, 1.0),
        "weights": b.want(op.dy, b.layout(op.dy.shape, layout)).view(matrix),
        "dst": b.output(op.db).view(target),
    }
    return b.primitive(op, desc, memories, shown)
