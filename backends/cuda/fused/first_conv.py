"""The two ends of a small net in kernels of ours: first convolution with its pool, dense tail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....graph.graph import Tensor
from ....graph.ops import (
    ACTIVATIONS,
    Activation,
    ActivationBackward,
    BiasAdd,
    BiasGrad,
    Conv2d,
    Conv2dBackwardFilter,
    Fused,
    MatMul,
    Metrics,
    Pool2d,
    Pool2dBackward,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from ....graph.rewrites_fused import FIRST_CONV, FIRST_CONV_BACKWARD, TAIL, TAIL_GRADIENTS
from ..binding.bind import Binder, binds
from ..binding.decisions import Maxima
from ..libraries.kernels import Defines, f32, i32
from ..libraries.layout import Layout, plain
from ..libraries.runtime import cupy
from .linear import geometry

# Threads that a block of the first convolution may have.
FORWARD_SIZES = tuple(range(128, 289, 32))
# Blocks that the largest GPU holds at once, and up to which batch a picture is shared by several.
FORWARD_BLOCKS, MOST_SPLIT_BATCH = 396, 128
BACKWARD_PARTS, MOST_WARPS = 264, 10
# Columns of a block of the tail's gradients, a power of two, and rows that it takes at once.
TAIL_SPAN, TAIL_LINES = 8, 64


@binds(Fused)
def fused(b: Binder, op: Fused) -> None:
    """The kernel of the operation's kind."""
    _BY_KIND[op.kind](b, op)


def part(op: Fused, kind: type[Any]) -> Any:
    """The one part of a type, given parts too; None without one."""
    found = [p for p in (*op.given, *op.parts) if isinstance(p, kind)]
    return found[0] if found else None


def _first_geometry(conv: Conv2d, pool: Pool2d, stored: int) -> dict[str, int]:
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
    wide = geometry(b).channels(channels)
    stored = -(-wide // 4) * 4
    return Layout(pool.y.shape, (n, stored, rows, columns), True, dtype=b.number(pool.y))


def _defines(values: dict[str, int]) -> Defines:
    return tuple(sorted(values.items()))


def _first_conv_pool(b: Binder, op: Fused) -> None:
    conv, pool = part(op, Conv2d), part(op, Pool2d)
    layout = _pooled_layout(b, pool)
    # Of one type with y, whoever reads that.
    x = b.want(conv.x, plain(conv.x.shape, layout.dtype))
    y = b.output(pool.y, layout)
    index = b.keep(cupy().zeros(layout.size, "uint8"))
    b.decisions.maxima[conv.y, pool.y] = Maxima(index, layout)
    values = _first_geometry(conv, pool, layout.stored[1])
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
        ("first_conv.cu", FIRST_CONV, y.dtype),
        (blocks, parts),
        arguments,
        block=(values["BLOCK"],),
        defines=_defines(values),
    )


def _backward_numbers(conv: Conv2d, pool: Pool2d) -> dict[str, int]:
    pairs = (conv.w.shape[0] + 1) // 2
    positions = pool.y.shape[2] * pool.y.shape[3]
    split = 2 if conv.x.shape[0] <= BACKWARD_PARTS // 2 and positions >= 64 else 1
    return {"WARPS": min(pairs, MOST_WARPS), "SPLIT": split}


def _first_conv_pool_backward(b: Binder, op: Fused) -> None:
    conv, pool, filters = part(op, Conv2d), part(op, Pool2d), part(op, Conv2dBackwardFilter)
    mask = part(op, ActivationBackward)
    index, layout = b.decisions.maxima[conv.y, pool.y]
    pooled_gradient = (mask if mask is not None else part(op, Pool2dBackward)).dy
    x = b.want(conv.x, plain(conv.x.shape, layout.dtype))
    dy, y = b.want(pooled_gradient, layout), b.home(pool.y)
    values = _first_geometry(conv, pool, layout.stored[1]) | _backward_numbers(conv, pool)
    n, count = conv.x.shape[0], conv.w.shape[0]
    taps = conv.window.area
    blocks = min(n, BACKWARD_PARTS)
    slices, stride = blocks * values["SPLIT"], count * (taps + 1)
    sums = b.scratch(slices * stride, "float32")
    groups = -(-((count + 1) // 2) // values["WARPS"])
    b.kernel(
        op,
        ("first_conv.cu", FIRST_CONV_BACKWARD, y.dtype),
        (blocks, values["SPLIT"], groups),
        (x.array, dy.array, index, y.array, sums, i32(n)),
        block=(32 * values["WARPS"],),
        defines=_defines(values),
    )
    b.slices(op, sums, 0, slices, stride, filters.dw, count * taps)
    if filters.bias_grad is not None:
        b.slices(op, sums, count * taps, slices, stride, filters.bias_grad, count)


def _tail_numbers(b: Binder, op: Fused) -> tuple[Tensor, Any, Any, Defines]:
    """The hidden layer's product and bias, the loss, the geometry."""
    act, bias = part(op, Activation), part(op, BiasAdd)
    pre = bias.x if bias is not None else act.x
    layout = b.home(pre).layout
    entropy = part(op, SoftmaxCrossEntropy)
    values = {
        "HIDDEN": layout.shape[1],
        "STRIDE": layout.stored[1],
        "CLASSES": entropy.x.shape[1],
        "KIND": ACTIVATIONS.index(act.kind),
        "SPAN": TAIL_SPAN,
        "LINES": TAIL_LINES,
    }
    return pre, bias, entropy, _defines(values)


def _dense_tail(b: Binder, op: Fused) -> None:
    pre, bias, entropy, defines = _tail_numbers(b, op)
    out = next(p for p in op.parts if isinstance(p, MatMul) and p.transpose_b)
    back, slope = part(op, SoftmaxCrossEntropyBackward), part(op, ActivationBackward)
    n = entropy.x.shape[0]
    held = b.home(pre)
    dpre_layout = Layout(slope.dx.shape, held.layout.stored, dtype=b.number(slope.dx))
    dpre = b.output(slope.dx, dpre_layout)
    rows = b.keep(cupy().zeros(2 * n, "float32"))
    b.decisions.row_sums[entropy.x] = rows
    arguments = (
        *(held.array, _bias(b, bias), b.home(out.b).array),
        0 if out.bias is None else b.home(out.bias).array,
        *(b.home(entropy.target).array, b.output(entropy.x).array, b.output(back.dx).array),
        *(dpre.array, rows, i32(n), f32(entropy.label_smoothing)),
        i32(entropy.reduction == "mean"),
    )
    kernel = ("dense_tail.cu", TAIL, dpre.dtype)
    b.kernel(op, kernel, (n,), arguments, block=(128,), defines=defines)


def _bias(b: Binder, bias: BiasAdd | None) -> Any:
    return 0 if bias is None else b.home(bias.b).array


def _dense_tail_gradients(b: Binder, op: Fused) -> None:
    pre, bias, entropy, defines = _tail_numbers(b, op)
    weight = next(p for p in op.parts if isinstance(p, MatMul) and p.transpose_a)
    metrics, first = part(op, Metrics), part(op, BiasGrad)
    n = entropy.x.shape[0]
    stride = b.home(pre).layout.stored[1]
    dpre = b.home(op.bf16[0])
    targets = (weight.c, None if first is None else first.db, weight.bias_grad)
    outs = [0 if t is None else b.output(t, b.planned(t)).array for t in targets]
    arguments = (
        *(b.home(pre).array, _bias(b, bias), b.home(weight.a).array, dpre.array),
        *(b.decisions.row_sums[entropy.x], b.home(entropy.target).array, *outs),
        *(i32(n), b.output(entropy.loss).array),
        0 if metrics is None else b.home(metrics.sums).array,
        i32(entropy.reduction == "mean"),
    )
    b.kernel(
        op,
        ("dense_tail.cu", TAIL_GRADIENTS, dpre.dtype),
        (-(-stride // TAIL_SPAN) + 2,),
        arguments,
        block=(TAIL_SPAN * TAIL_LINES,),
        defines=defines,
    )


_BY_KIND: dict[str, Callable[[Binder, Fused], None]] = {
    FIRST_CONV: _first_conv_pool,
    FIRST_CONV_BACKWARD: _first_conv_pool_backward,
    TAIL: _dense_tail,
    TAIL_GRADIENTS: _dense_tail_gradients,
}
