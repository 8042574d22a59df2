"""Convolution of one-channel pictures, bias, ReLU, max-pool of 2 by 2, and back, in two kernels."""

from __future__ import annotations

from ....graph.graph import Graph, Op, Tensor
from ....graph.ops import (
    ActivationBackward,
    Conv2d,
    Conv2dBackwardFilter,
    Fused,
    Pool2d,
    Pool2dBackward,
)
from ..binding.bind import Binder
from ..binding.decisions import Maxima
from ..libraries.kernels import i32
from ..libraries.layout import Layout, plain
from .pattern import defines, launches, part, replace_ops, united

FORWARD, BACKWARD = "first_conv_pool", "first_conv_pool_backward"
FILE = "first_conv.cu"
# What the kernels keep in registers and shared memory bounds their geometry.
MOST_TAPS, MOST_FILTERS, MOST_PIXELS, MOST_SHARED = 31, 64, 64 * 64, 48 << 10
# Threads that a block of forward may have.
FORWARD_SIZES = tuple(range(128, 289, 32))
# Blocks that the largest GPU holds at once, and up to which batch a picture is shared by several.
FORWARD_BLOCKS, MOST_SPLIT_BATCH = 396, 128
BACKWARD_PARTS, MOST_WARPS = 264, 10

# ---------------------------------------------------------------- the pattern


def rewrite(graph: Graph) -> Graph:
    """Convolution of one-channel pictures, bias, ReLU, max-pool of 2 by 2; and its gradient.

    Only if nothing needs the convolution's own output or the gradient of the pictures.
    """
    ops = list(graph.ops)
    for conv in [op for op in ops if isinstance(op, Conv2d) and _small(op)]:
        readers = graph.consumers(conv.y)
        pool = next((op for op in readers if isinstance(op, Pool2d)), None)
        if pool is None or not _halves(pool) or conv.y in graph.results.values():
            continue
        backward = [op for op in readers if op is not pool]
        forward = united(FORWARD, (conv, pool), bf16=(conv.x, pool.y))
        if not backward:
            replace_ops(ops, [conv, pool], forward)
            continue
        chain = _gradient_chain(graph, conv, pool, backward)
        if chain is None:
            continue
        dp, taken = chain
        filters = taken[-1]
        back = united(BACKWARD, taken, (conv, pool), (pool.y,), bf16=(conv.x, pool.y, dp))
        replace_ops(ops, [conv, pool], forward)
        replace_ops(ops, list(taken), back, at=filters)
    return graph.with_ops(ops)


def _small(conv: Conv2d) -> bool:
    window, (_, channels, height, width) = conv.window, conv.x.shape
    return (
        channels == 1
        and conv.groups == 1
        and conv.activation in (None, "relu")
        and window.stride == window.dilation == (1, 1)
        and len(set(window.padding)) == 1
        and window.area <= MOST_TAPS
        and conv.w.shape[0] <= MOST_FILTERS
        and height * width <= MOST_PIXELS
        and _shared_bytes(conv) <= MOST_SHARED
    )


def _shared_bytes(conv: Conv2d) -> int:
    """What forward's kernel keeps: two pictures with their padding, filters in fours, biases."""
    _, _, height, width = conv.x.shape
    edge, groups = 2 * conv.window.padding[0], -(-conv.w.shape[0] // 4)
    picture = (height + edge) * ((width + edge + 1) // 2 * 2 + 2)
    return 4 * (2 * picture + groups * (16 * -(-conv.window.area // 4) + 4 + 4))


def _halves(pool: Pool2d) -> bool:
    height, width = pool.x.shape[2:]
    return (
        pool.kind == "max"
        and pool.window.kernel == pool.window.stride == (2, 2)
        and not any(pool.window.padding)
        and pool.y.shape[2:] == (height // 2, width // 2)
    )


def _gradient_chain(
    graph: Graph, conv: Conv2d, pool: Pool2d, backward: list[Op]
) -> tuple[Tensor, tuple[Op, ...]] | None:
    """The pooled gradient and the operations from it to the filters', or None if others join."""
    if len(backward) != 1 or not isinstance(backward[0], Pool2dBackward):
        return None
    back = backward[0]
    ends = graph.consumers(back.dx)
    if len(ends) != 1 or not isinstance(ends[0], Conv2dBackwardFilter):
        return None
    if (ends[0].bias_grad is None) != (conv.bias is None):
        return None
    if conv.activation is None:
        return back.dy, (back, ends[0])
    mask = graph.producer(back.dy)
    masks = isinstance(mask, ActivationBackward) and mask.kind == "relu" and mask.value == pool.y
    if not masks or graph.consumers(back.dy) != [back]:
        return None
    assert isinstance(mask, ActivationBackward)
    return mask.dy, (mask, back, ends[0])


# ---------------------------------------------------------------- the launches


def _numbers(conv: Conv2d, pool: Pool2d, stored: int) -> dict[str, int]:
    height, width = conv.x.shape[2:]
    items = pool.y.shape[2] * pool.y.shape[3] * -(-conv.w.shape[0] // 4)
    return {
        "HEIGHT": height,
        "WIDTH": width,
        "KERNEL_H": conv.window.kernel[0],
        "KERNEL_W": conv.window.kernel[1],
        "PAD": conv.window.padding[0],
        "FILTERS": conv.w.shape[0],
        "STORED": stored,
        "ROWS": pool.y.shape[2],
        "COLUMNS": pool.y.shape[3],
        "WITH_RELU": int(conv.activation == "relu"),
        "BLOCK": min(FORWARD_SIZES, key=lambda t: (-(-items // t) * t, -t)),
    }


def _pooled_layout(b: Binder, pool: Pool2d) -> Layout:
    """y in fours of channels, channels-last whatever the layout of the other pictures."""
    n, channels, rows, columns = pool.y.shape
    wide = b.geometry.channels(channels)
    stored = -(-wide // 4) * 4
    return Layout(pool.y.shape, (n, stored, rows, columns), True, dtype=b.number(pool.y))


@launches(FORWARD)
def _forward(b: Binder, op: Fused) -> None:
    conv, pool = part(op, Conv2d), part(op, Pool2d)
    layout = _pooled_layout(b, pool)
    # Of one type with y, whoever reads that.
    x = b.want(conv.x, plain(conv.x.shape, layout.dtype))
    y = b.output(pool.y, layout)
    index = b.keep(b.cupy.zeros(layout.size, "uint8"))
    b.decisions.maxima[conv.y, pool.y] = Maxima(index, layout)
    values = _numbers(conv, pool, layout.stored[1])
    # The same module serves forward and backward, so both are compiled with all numbers.
    values |= _backward_numbers(conv, pool)
    n = conv.x.shape[0]
    items = values["ROWS"] * values["COLUMNS"] * -(-values["FILTERS"] // 4)
    rounds = -(-items // values["BLOCK"])
    parts = rounds if n <= MOST_SPLIT_BATCH else 1
    blocks = min(n, max(1, FORWARD_BLOCKS // parts))
    bias = 0 if conv.bias is None else b.home(conv.bias).array
    arguments = (x.array, b.home(conv.w).array, bias, y.array, index, i32(n))
    b.kernel(
        op,
        (FILE, FORWARD, y.dtype),
        (blocks, parts),
        arguments,
        block=(values["BLOCK"],),
        defines=defines(values),
    )


def _backward_numbers(conv: Conv2d, pool: Pool2d) -> dict[str, int]:
    pairs = (conv.w.shape[0] + 1) // 2
    positions = pool.y.shape[2] * pool.y.shape[3]
    split = 2 if conv.x.shape[0] <= BACKWARD_PARTS // 2 and positions >= 64 else 1
    return {"WARPS": min(pairs, MOST_WARPS), "SPLIT": split}


@launches(BACKWARD)
def _backward(b: Binder, op: Fused) -> None:
    conv, pool, filters = part(op, Conv2d), part(op, Pool2d), part(op, Conv2dBackwardFilter)
    mask = part(op, ActivationBackward)
    index, layout = b.decisions.maxima[conv.y, pool.y]
    pooled_gradient = (mask if mask is not None else part(op, Pool2dBackward)).dy
    x = b.want(conv.x, plain(conv.x.shape, layout.dtype))
    dy, y = b.want(pooled_gradient, layout), b.home(pool.y)
    values = _numbers(conv, pool, layout.stored[1]) | _backward_numbers(conv, pool)
    n, count = conv.x.shape[0], conv.w.shape[0]
    taps = conv.window.area
    blocks = min(n, BACKWARD_PARTS)
    slices, stride = blocks * values["SPLIT"], count * (taps + 1)
    sums = b.scratch(slices * stride, "float32")
    groups = -(-((count + 1) // 2) // values["WARPS"])
    b.kernel(
        op,
        (FILE, BACKWARD, y.dtype),
        (blocks, values["SPLIT"], groups),
        (x.array, dy.array, index, y.array, sums, i32(n)),
        block=(32 * values["WARPS"],),
        defines=defines(values),
    )
    b.slices(op, sums, 0, slices, stride, filters.dw, count * taps)
    if filters.bias_grad is not None:
        b.slices(op, sums, count * taps, slices, stride, filters.bias_grad, count)
