"""Convolution of one-channel pictures, bias, ReLU, max-pool of 2 by 2, and back, in two kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ....common.records import dataclass
from ....graph import ops
from ....graph.graph import Graph, Op, Tensor
from ....graph.rewrites import replace_ops
from ..binding.bind import Binder
from ..binding.decisions import Maxima
from ..binding.launches import Stream
from ..libraries.layout import Layout, ceil_div, padded, plain
from ..libraries.timing import trial_seconds
from .pattern import LAUNCHES, defines, halves, part, single, united

FORWARD, BACKWARD = "first_conv_pool", "first_conv_pool_backward"
FILE = "first_conv.cu"
# The same on tensor cores.
TENSOR_FILE, TENSOR_FORWARD = "tensor_first.cu", "tensor_first_pool"
TENSOR_BACKWARD = "tensor_first_pool_backward"
# The choices between both for backward.
PLAIN, TENSOR = "p", "t"
# What the kernels keep in registers and shared memory bounds their geometry.
MOST_TAPS, MOST_FILTERS, MOST_PIXELS, MOST_SHARED = 31, 64, 64 * 64, 48 << 10
# Threads that a block of forward may have.
FORWARD_SIZES = tuple(range(128, 289, 32))
# Blocks that the largest GPU holds at once, and up to which batch a picture is shared by several.
FORWARD_BLOCKS, MOST_SPLIT_BATCH = 396, 128
BACKWARD_PARTS, MOST_WARPS = 264, 10
# Of the kernels on tensor cores: eight windows of the max-pool are a unit; filters come in eights.
UNIT, OCTET, MOST_OCTETS, TENSOR_WARPS = 8, 8, 4, 9


def rewrite(graph: Graph) -> Graph:
    """Convolution of one-channel pictures, bias, ReLU, max-pool of 2 by 2; and its gradient.

    Only if nothing needs the convolution's own output or the gradient of the pictures.
    """
    listed = list(graph.ops)
    for conv in [op for op in listed if isinstance(op, ops.Conv2d) and _small(op)]:
        readers = graph.consumers(conv.y)
        pool = next((op for op in readers if isinstance(op, ops.Pool2d)), None)
        if pool is None or not halves(pool) or conv.y in graph.results.values():
            continue
        backward = [op for op in readers if op is not pool]
        chain = _gradient_chain(graph, conv, pool, backward) if backward else None
        if backward and chain is None:
            continue
        forward = united(FORWARD, (conv, pool), bf16=(conv.x, pool.y))
        replace_ops(listed, [conv, pool], forward)
        if chain is not None:
            dp, taken = chain
            back = united(BACKWARD, taken, (conv, pool), (pool.y,), bf16=(conv.x, pool.y, dp))
            replace_ops(listed, list(taken), back, at=taken[-1])
    return graph.with_ops(listed)


def _small(conv: ops.Conv2d) -> bool:
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


def _shared_bytes(conv: ops.Conv2d) -> int:
    """What forward's kernel keeps: two pictures with their padding, filters in fours, biases."""
    _, _, height, width = conv.x.shape
    edge, groups = 2 * conv.window.padding[0], ceil_div(conv.w.shape[0], 4)
    picture = (height + edge) * ((width + edge + 1) // 2 * 2 + 2)
    return 4 * (2 * picture + groups * (16 * ceil_div(conv.window.area, 4) + 4 + 4))


def _gradient_chain(
    graph: Graph, conv: ops.Conv2d, pool: ops.Pool2d, backward: list[Op]
) -> tuple[Tensor, tuple[Op, ...]] | None:
    """The pooled gradient and the operations from it to the filters', or None if others join."""
    back = single(backward, ops.Pool2dBackward)
    filters = single(graph.consumers(back.dx), ops.Conv2dBackwardFilter) if back else None
    if not back or not filters or (filters.bias_grad is None) != (conv.bias is None):
        return None
    if conv.activation is None:
        return back.dy, (back, filters)
    match graph.producer(back.dy):
        case ops.ActivationBackward(kind="relu", value=pool.y) as mask:
            if graph.consumers(back.dy) == [back]:
                return mask.dy, (mask, back, filters)
    return None


def _numbers(conv: ops.Conv2d, pool: ops.Pool2d, stored: int) -> dict[str, int]:
    """What the module of both kernels is compiled with."""
    filters, positions = conv.w.shape[0], pool.y.shape[2] * pool.y.shape[3]
    items = positions * ceil_div(filters, 4)
    block = min(FORWARD_SIZES, key=lambda t: (padded(items, t), -t))
    split = conv.x.shape[0] <= BACKWARD_PARTS // 2 and positions >= 64
    shape = {"BLOCK": block, "WARPS": min((filters + 1) // 2, MOST_WARPS), "SPLIT": 1 + split}
    return _geometry(conv, pool, stored) | shape


def _geometry(conv: ops.Conv2d, pool: ops.Pool2d, stored: int) -> dict[str, int]:
    """What all modules are compiled with."""
    names = "HEIGHT WIDTH KERNEL_H KERNEL_W PAD FILTERS STORED ROWS COLUMNS WITH_RELU"
    numbers = (
        *(*conv.x.shape[2:], *conv.window.kernel, conv.window.padding[0], conv.w.shape[0], stored),
        *(*pool.y.shape[2:], int(conv.activation == "relu")),
    )
    return dict(zip(names.split(), numbers, strict=True))


def _tensor_numbers(conv: ops.Conv2d, pool: ops.Pool2d, stored: int) -> dict[str, int]:
    """What the module on tensor cores is compiled with."""
    filters, units = conv.w.shape[0], ceil_div(pool.y.shape[2] * pool.y.shape[3], UNIT)
    octets = ceil_div(filters, OCTET)
    groups = ceil_div(octets, MOST_OCTETS)
    split = 2 if conv.x.shape[0] <= MOST_SPLIT_BATCH and units >= TENSOR_WARPS else 1
    every = range(groups, TENSOR_WARPS + 1, groups)
    # As few warps as take no longer.
    warps = min(every, key=lambda count: (ceil_div(ceil_div(units, split), count // groups), count))
    shape = {"WARPS": warps, "OCTETS": ceil_div(octets, groups), "SPLIT": split}
    return _geometry(conv, pool, stored) | shape


def _tensor_bytes(values: dict[str, int]) -> int:
    """Of shared memory that backward on tensor cores takes, which is more than forward."""
    tall = values["HEIGHT"] + 2 * values["PAD"]
    pitch = padded(values["WIDTH"] + 2 * values["PAD"], 2) + 2
    wide = OCTET * values["OCTETS"]
    taps = padded(values["KERNEL_H"] * values["KERNEL_W"], 16) + (1 if values["OCTETS"] > 3 else 4)
    sums = values["WARPS"] * wide * taps
    return 4 * (max(2 * tall * pitch, sums) + values["WARPS"] * UNIT * wide)


def _on_tensor_cores(
    b: Binder, conv: ops.Conv2d, pool: ops.Pool2d, stored: int
) -> dict[str, int] | None:
    """What to compile for them; None if numbers must not be rounded, or shared memory is short."""
    values = _tensor_numbers(conv, pool, stored)
    return None if b.arithmetic.exact or _tensor_bytes(values) > MOST_SHARED else values


def _shared_out(n: int, most: int) -> int:
    """Blocks for n pictures, at most so many, of which each has as many as the others if it can."""
    return ceil_div(n, ceil_div(n, most))


def _forward(b: Binder, op: ops.Fused) -> None:
    conv, pool = part(op, ops.Conv2d), part(op, ops.Pool2d)
    # In fours of channels, channels-last whatever the layout of the other pictures.
    n, channels, rows, columns = pool.y.shape
    stored = padded(b.geometry.channels(channels), 4)
    layout = Layout(pool.y.shape, (n, stored, rows, columns), True, dtype=b.number(pool.y))
    # Of one type with y, whoever reads that.
    x = b.want(conv.x, plain(conv.x.shape, layout.dtype))
    y = b.output(pool.y, layout)
    index = b.zeros(layout.size, "uint8")
    # Nobody has what they are of.
    b.decisions.maxima[conv.y, pool.y] = Maxima(index, layout, layout)
    arguments = (x, conv.w, conv.bias, y, index, n)
    tensor = _on_tensor_cores(b, conv, pool, stored)
    if tensor is not None:
        grid = (_shared_out(n, FORWARD_BLOCKS), tensor["SPLIT"])
        kernel, block = (TENSOR_FILE, TENSOR_FORWARD, y.dtype), (32 * tensor["WARPS"],)
        return b.kernel(op, kernel, grid, arguments, block=block, defines=defines(tensor))
    values = _numbers(conv, pool, stored)
    items = rows * columns * ceil_div(channels, 4)
    parts = ceil_div(items, values["BLOCK"]) if n <= MOST_SPLIT_BATCH else 1
    blocks = min(n, max(1, FORWARD_BLOCKS // parts))
    kernel, block = (FILE, FORWARD, y.dtype), (values["BLOCK"],)
    return b.kernel(op, kernel, (blocks, parts), arguments, block=block, defines=defines(values))


@dataclass(frozen=True)
class _Way:
    """One of the kernels of backward: ``blocks`` share the pictures, ``groups`` the filters."""

    file: str
    function: str
    values: dict[str, int]
    blocks: int
    groups: int

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.blocks, self.values["SPLIT"], self.groups

    @property
    def block(self) -> tuple[int]:
        return (32 * self.values["WARPS"],)

    def seconds(self, stream: Stream, dtype: str, arguments: Sequence[Any], repeats: int) -> float:
        """Of a launch on the device; infinite if it fails."""
        fixed = defines(self.values)
        kernel = stream.kernel(self.file, self.function, dtype, defines=fixed)
        launch = kernel.launch(stream.cuda, self.grid, self.block, arguments)
        return trial_seconds(launch, stream.cuda, repeats)


def _backward(b: Binder, op: ops.Fused) -> None:
    conv, pool, filters = (
        part(op, ops.Conv2d),
        part(op, ops.Pool2d),
        part(op, ops.Conv2dBackwardFilter),
    )
    mask = part(op, ops.ActivationBackward)
    index, layout, _ = b.decisions.maxima[conv.y, pool.y]
    pooled_gradient = (mask if mask is not None else part(op, ops.Pool2dBackward)).dy
    x = b.want(conv.x, plain(conv.x.shape, layout.dtype))
    dy, y = b.want(pooled_gradient, layout), b.home(pool.y)
    n, count, stride = conv.x.shape[0], conv.w.shape[0], conv.w.shape[0] * (conv.window.area + 1)
    plain_values = _numbers(conv, pool, layout.columns)
    tensor = _on_tensor_cores(b, conv, pool, layout.columns)
    groups = ceil_div((count + 1) // 2, plain_values["WARPS"])
    ways = {PLAIN: _Way(FILE, BACKWARD, plain_values, min(n, BACKWARD_PARTS), groups)}
    if tensor is not None:
        # On tensor cores the warps of a block share all filters out.
        blocks = _shared_out(n, BACKWARD_PARTS)
        ways[TENSOR] = _Way(TENSOR_FILE, TENSOR_BACKWARD, tensor, blocks, 1)
    name = b.choice(filters, "first")
    # What is taken where nothing was timed.
    usual = TENSOR if tensor is not None and n > BACKWARD_PARTS else PLAIN
    way = ways.get(b.choices.get(name, usual), ways[usual])
    # As many as the most that any batch of this size or less has: what is needed grows with it.
    most = max(each.values["SPLIT"] for each in ways.values())
    sums = b.scratch(min(n, BACKWARD_PARTS) * most * stride, "float32")
    arguments, slices = (x, dy, index, y, sums, n), way.blocks * way.values["SPLIT"]
    given = [*map(b.argument, arguments)]
    for mark, each in ways.items():
        b.either[name][mark] = partial(each.seconds, b.stream, y.dtype, given)
    kernel, fixed = (way.file, way.function, y.dtype), defines(way.values)
    b.kernel(op, kernel, way.grid, arguments, block=way.block, defines=fixed)
    taps = conv.window.area
    b.slices(op, sums, 0, slices, stride, filters.dw, count * taps)
    if filters.bias_grad is not None:
        b.slices(op, sums, count * taps, slices, stride, filters.bias_grad, count)


LAUNCHES |= {FORWARD: _forward, BACKWARD: _backward}
