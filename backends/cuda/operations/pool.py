"""Pooling: cuDNN's forward, or kernels of ours that keep where each maximum was."""

from __future__ import annotations

from ctypes import c_void_p
from dataclasses import replace
from functools import partial

from ....graph.ops import ActivationBackward, Pool2d, Pool2dBackward, Reshape
from ..binding.bind import Binder, binds
from ..binding.decisions import Ending, Maxima
from ..binding.store import Buffer
from ..libraries.kernels import THREADS, Defines, i32, i64, linear_grid
from ..libraries.layout import BFLOAT, Layout

MOST_TAPS = 255
# Indices of fours are 32 bits.
MOST_FOURS = 1 << 30
# Kernels whose loops are unrolled.
COMMON = ((2, 2), (3, 3))
# Four waves on the largest GPU; each block leaves a slice of sums.
POOL_BLOCKS = 1056


def _symmetric(op: Pool2d | Pool2dBackward) -> bool:
    """Whether cuDNN's descriptor can say the padding, and every window begins inside of it."""
    top, bottom, left, right = op.window.padding
    return top == bottom and left == right


def _numbers(b: Binder, op: Pool2d | Pool2dBackward, x: Layout, y: Layout) -> object:
    """struct Pool of pool.cu; padded channels are pooled like the others."""
    top, _, left, _ = op.window.padding
    sizes = (x.stored[1], *x.shape[2:], *y.shape[2:])
    window = (*op.window.kernel, *op.window.stride, top, left)
    return b.numbers(*sizes, *window, int(x.nhwc), int(op.kind == "avg"))


def _windows(b: Binder, op: Pool2d | Pool2dBackward, x: Layout, y: Layout) -> object:
    """struct Windows of max_pool.cu."""
    top, _, left, _ = op.window.padding
    sizes = (*x.shape[2:], *y.shape[2:])
    window = (*op.window.kernel, *op.window.stride, top, left)
    return b.numbers(*sizes, *window, x.stored[1] // 4, x.shape[1], y.stored[1])


def _shape(op: Pool2d | Pool2dBackward, x: Layout, y: Layout) -> Defines:
    """What max_pool.cu is compiled for: a common kernel; eight channels a thread in bfloat16."""
    kernel = op.window.kernel if op.window.kernel in COMMON else (0, 0)
    eights = x.dtype == BFLOAT and x.stored[1] % 8 == y.stored[1] % 8 == 0 and kernel == (2, 2)
    return (("KH", kernel[0]), ("KW", kernel[1]), ("EACH", 8 if eights else 4))


def indexed(b: Binder, op: Pool2d, x: Layout) -> bool:
    """Whether the kernel that keeps an index serves: channels-last, in fours, short windows."""
    pixels = max(tensor.size // tensor.shape[1] for tensor in (op.x, op.y))
    return (
        b.arithmetic.fusion
        and op.kind == "max"
        and x.nhwc
        and b.geometry.nhwc
        and x.stored[1] % 4 == 0
        and x.stored[1] // 4 <= THREADS
        and pixels * (x.stored[1] // 4) <= MOST_FOURS
        and op.window.area <= MOST_TAPS
    )


@binds(Pool2d)
def pool2d(b: Binder, op: Pool2d) -> None:
    """cudnnPoolingForward; an own kernel that keeps an index where backward is to follow, where
    the padding differs between two sides, and in bfloat16."""
    x = b.home(op.x)
    if len({x.layout.dtype, b.number(op.y)}) > 1:
        x = b.want(op.x, replace(x.layout, dtype=b.number(op.y)))
    if indexed(b, op, x.layout):
        return _max_pool(b, op, x)
    y = b.output(op.y, _pooled(op, x.layout))
    size = y.layout.size
    if not _symmetric(op) or x.dtype == BFLOAT:
        arguments = (x.array, y.array, i64(size), _numbers(b, op, x.layout, y.layout))
        kernel = ("pool.cu", "pool_forward", x.dtype)
        return b.kernel(op, kernel, linear_grid(size), arguments, {"window": op.window})
    cudnn = b.stream.cudnn
    top, _, left, _ = op.window.padding
    pooling = b.keep(cudnn.pooling(op.kind, op.window.kernel, (top, left), op.window.stride))
    source = b.keep(cudnn.tensor(x.layout.stored, x.layout.strides))
    target = b.keep(cudnn.tensor(y.layout.stored, y.layout.strides))
    launch = partial(
        cudnn.call,
        "cudnnPoolingForward",
        *(c_void_p(cudnn.handle), c_void_p(pooling.handle), cudnn.one, c_void_p(source.handle)),
        *(c_void_p(x.pointer), cudnn.zero, c_void_p(target.handle), c_void_p(y.pointer)),
        window=op.window,
        x=op.x.shape,
    )
    details = {"window": op.window, "layout": "nhwc" if x.layout.nhwc else "nchw"}
    return b.add(op, "cuDNN", "cudnnPoolingForward", launch, details)


def _pooled(op: Pool2d, x: Layout) -> Layout:
    """y as x lies, padding included."""
    stored = (op.y.shape[0], x.stored[1], *op.y.shape[2:])
    return Layout(op.y.shape, stored, x.nhwc, dtype=x.dtype)


def _max_pool(b: Binder, op: Pool2d, x: Buffer) -> None:
    readers = b.graph.consumers(op.y)
    flat = [r for r in readers if isinstance(r, Reshape)]
    backward = (Pool2dBackward, ActivationBackward)
    others = [r for r in readers if not isinstance(r, (Reshape, *backward))]
    layout = b.geometry.picture(op.y.shape, x.layout.dtype, compact=bool(flat) and not others)
    y = b.output(op.y, layout)
    index = b.keep(b.cupy.zeros(layout.size, "uint8"))
    b.decisions.maxima[op.x, op.y] = Maxima(index, layout)
    outs = op.y.shape[0] * op.y.shape[2] * op.y.shape[3]
    ending = b.decisions.endings.get(op.x, Ending())
    windows = _windows(b, op, x.layout, layout)
    arguments = (x.array, y.array, index, i32(outs), windows, ending.bias, i32(ending.relu))
    kernel = ("max_pool.cu", "max_pool", x.dtype)
    fixed = _shape(op, x.layout, layout)
    grid = linear_grid(outs * x.layout.stored[1] // dict(fixed)["EACH"])
    b.kernel(op, kernel, grid, arguments, {"window": op.window}, defines=fixed)


@binds(Pool2dBackward)
def pool2d_backward(b: Binder, op: Pool2dBackward) -> None:
    """An own kernel: cuDNN's maximum may break a tie otherwise, and is slow at scale."""
    kept = b.decisions.maxima.get((op.x, op.y))
    if kept is not None:
        return _max_pool_backward(b, op, *kept)
    dtype = b.number(op.dx)
    like = b.home(op.x if op.x is not None else op.dy).layout
    stored = (op.dx.shape[0], like.stored[1], *op.dx.shape[2:])
    dx_layout = Layout(op.dx.shape, stored, like.nhwc, dtype=dtype)
    small = Layout(op.dy.shape, (*stored[:2], *op.dy.shape[2:]), like.nhwc, dtype=dtype)
    dy, dx = b.want(op.dy, small), b.output(op.dx, dx_layout)
    x = b.want(op.x, dx_layout).array if op.x is not None else dy.array
    pool = _numbers(b, op, dx_layout, small)
    shown = {"window": op.window, "layout": "nhwc" if like.nhwc else "nchw"}
    if op.window.kernel == op.window.stride and not any(op.window.padding) and _covers(op):
        kernel = ("pool.cu", "pool_backward_disjoint", dx.dtype)
        arguments = (x, dy.array, dx.array, i64(small.size), pool)
        return b.kernel(op, kernel, linear_grid(small.size), arguments, shown)
    y = b.want(op.y, small).array if op.y is not None else dy.array
    every = (x, y, dy.array, dx.array, i64(dx_layout.size), pool)
    kernel = ("pool.cu", "pool_backward", dx.dtype)
    return b.kernel(op, kernel, linear_grid(dx_layout.size), every, shown)


def _covers(op: Pool2dBackward) -> bool:
    """Whether windows that do not overlap cover the picture, and nothing beyond it."""
    ends = (
        stride * (count - 1) + kernel == size
        for stride, count, kernel, size in zip(
            op.window.stride, op.dy.shape[2:], op.window.kernel, op.dx.shape[2:], strict=True
        )
    )
    return all(ends)


def _max_pool_backward(b: Binder, op: Pool2dBackward, index: object, layout: Layout) -> None:
    """dx by the index that forward kept; a ReLU before the pool and the bias's sum on the way."""
    mask = b.graph.producer(op.dy)
    masks = (
        isinstance(mask, ActivationBackward)
        and mask.kind == "relu"
        and mask.value == op.y
        and mask in b.decisions.masked
    )
    dy_tensor = mask.dy if masks and isinstance(mask, ActivationBackward) else op.dy
    dtype = layout.dtype
    dy = b.want(dy_tensor, replace(layout, dtype=dtype))
    assert op.x is not None
    assert op.y is not None
    y = b.home(op.y).array if masks else 0
    # As x lies: a picture of few channels is in fours only where an operation before made it so.
    dx_layout = replace(b.home(op.x).layout, dtype=dtype)
    dx = b.output(op.dx, dx_layout)
    stored = dx_layout.stored[1]
    disjoint = op.window.kernel == op.window.stride and not any(op.window.padding) and _covers(op)
    places = layout.size // layout.stored[1] if disjoint else dx_layout.size // stored
    found = b.bias_gradient_of(op.dx)
    blocks = max(1, min(POOL_BLOCKS, -(-places // (THREADS // (stored // 4)))))
    sums: object = 0 if found is None else b.scratch(blocks * stored, "float32")
    windows = _windows(b, op, dx_layout, layout)
    arguments = (dy.array, index, y, dx.array, i32(places), windows, sums)
    shown = {"window": op.window, "relu": masks, "sums": found[1].name if found else "none"}
    name = "max_pool_backward_disjoint" if disjoint else "max_pool_backward"
    fixed = _shape(op, dx_layout, layout)
    b.kernel(op, ("max_pool.cu", name, dx.dtype), (blocks,), arguments, shown, defines=fixed)
    if found is not None:
        b.decisions.summed.add(found[0])
        b.slices(op, sums, 0, blocks, stored, found[1], found[1].size)
