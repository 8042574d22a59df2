"""Pooling: cuDNN's forward, or kernels of ours: where windows lie apart, which keep the places of
maxima, and where cuDNN does not serve."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ....graph import ops
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..binding.choices import Bare, Through
from ..binding.decisions import Maxima, Spread, Together
from ..libraries.kernels import MAX_BLOCKS, THREADS, Defines, blocks_for, i64, u32
from ..libraries.layout import BFLOAT, Layout, ceil_div

MOST_TAPS = 255
# Indices of fours are 32 bits.
MOST_FOURS = 1 << 30
# Kernels whose loops are unrolled.
COMMON = ((2, 2), (3, 3))
# Pixels of a window that one thread adds up. Of larger ones, as of a global average, there are too
# few for that: several threads have FEW_TAPS each, or more. With more than MOST_SPLIT of them, a
# block would read less than 128 bytes side by side.
MOST_ALONE, FEW_TAPS, MOST_SPLIT = 9, 2, 32
# Four waves on the largest GPU, where each block leaves a slice of sums.
POOL_BLOCKS = 1056
# What may take a max-pool's gradient on the way.
GRADIENTS = ((ops.Conv2dBackwardData, "data"), (ops.Conv2dBackwardFilter, "filter"))


def _geometry(op: ops.Pool2d | ops.Pool2dBackward, x: Layout, y: Layout) -> tuple[int, ...]:
    top, _, left, _ = op.window.padding
    return (*x.shape[2:], *y.shape[2:], *op.window.kernel, *op.window.stride, top, left)


def _numbers(b: Binder, op: ops.Pool2d | ops.Pool2dBackward, x: Layout, y: Layout) -> object:
    """struct Pool of pool.cu; padded channels are pooled like the others."""
    return b.numbers(x.columns, *_geometry(op, x, y), x.nhwc, op.kind == "avg")


def _windows(b: Binder, op: ops.Pool2d | ops.Pool2dBackward, x: Layout, y: Layout) -> object:
    """struct Windows of max_pool.cu."""
    return b.numbers(*_geometry(op, x, y), x.columns // 4, x.shape[1], y.columns)


def _shown(op: ops.Pool2d | ops.Pool2dBackward, x: Layout) -> dict[str, object]:
    return {"window": op.window, "layout": "nhwc" if x.nhwc else "nchw"}


def _shape(op: ops.Pool2d | ops.Pool2dBackward, x: Layout, y: Layout) -> Defines:
    """What max_pool.cu is compiled for: a common kernel; eight channels a thread in bfloat16, but
    forward only four where it has more than four numbers of each at once."""
    kernel = op.window.kernel if op.window.kernel in COMMON else (0, 0)
    few = isinstance(op, ops.Pool2dBackward) or kernel == (2, 2)
    eights = x.dtype == BFLOAT and x.columns % 8 == y.columns % 8 == 0 and few
    return (("KH", kernel[0]), ("KW", kernel[1]), ("EACH", 8 if eights else 4))


def _apart(
    b: Binder, op: ops.Pool2d | ops.Pool2dBackward, large: Layout, small: Layout
) -> Defines | None:
    """What disjoint_pool.cu is compiled for; None where it does not serve.

    It takes averages, or pixels, of windows that neither overlap nor are padded, in channels-last
    fours. Where all are one window, its stride means nothing.
    """
    window, counts = op.window, small.shape[2:]
    ends = tuple(zip(window.kernel, window.stride, counts, strict=True))
    if not (
        b.arithmetic.fusion
        and (op.kind == "avg" or window.area == 1)
        and not any(window.padding)
        and all(size <= stride or count == 1 for size, stride, count in ends)
        and large.nhwc
        and large.columns % 4 == 0
        and large.size // 4 <= MOST_FOURS
    ):
        return None
    (height, width), (rows, columns) = large.shape[2:], counts
    down, across = (max(size, stride) for size, stride, _ in ends)
    return (
        ("EACH", 8 if large.dtype == BFLOAT and large.columns % 8 == 0 else 4),
        *(("CHANNELS", large.columns), ("HEIGHT", height), ("WIDTH", width)),
        *(("ROWS", rows), ("COLUMNS", columns)),
        *(("KERNEL_H", window.kernel[0]), ("KERNEL_W", window.kernel[1])),
        *(("STRIDE_H", down), ("STRIDE_W", across), ("SPLIT", _split(window.area))),
    )


def _split(area: int) -> int:
    """How many threads add up a window: a power of two."""
    if area <= MOST_ALONE:
        return 1
    return min(MOST_SPLIT, 1 << (ceil_div(area, FEW_TAPS) - 1).bit_length())


def indexed(b: Binder, op: ops.Pool2d, x: Layout) -> bool:
    """Whether the kernel that keeps an index serves: channels-last, in fours, short windows."""
    pixels = max(tensor.size // tensor.shape[1] for tensor in (op.x, op.y))
    return (
        b.arithmetic.fusion
        and op.kind == "max"
        and x.nhwc
        and b.geometry.nhwc
        and x.columns % 4 == 0
        and x.columns // 4 <= THREADS
        and pixels * (x.columns // 4) <= MOST_FOURS
        and op.window.area <= MOST_TAPS
    )


@binds(ops.Pool2d)
def pool2d(b: Binder, op: ops.Pool2d) -> None:
    """cudnnPoolingForward; own kernels for maxima in channels-last pictures, which keep an index,
    where windows lie apart, where the padding differs between two sides, and in bfloat16."""
    x = b.want(op.x, replace(b.home(op.x).layout, dtype=b.number(op.y)))
    if indexed(b, op, x.layout):
        return _max_pool(b, op, x)
    # As x lies, padding included.
    stored = (op.y.shape[0], x.layout.columns, *op.y.shape[2:])
    y = b.output(op.y, Layout(op.y.shape, stored, x.layout.nhwc, dtype=x.dtype))
    fixed = _apart(b, op, x.layout, y.layout)
    if fixed is not None:
        numbers = dict(fixed)
        groups = y.layout.size // numbers["EACH"]
        blocks = blocks_for(groups, THREADS // numbers["SPLIT"], MAX_BLOCKS)
        kernel = ("disjoint_pool.cu", "disjoint_pool", x.dtype)
        ends = (x, y, u32(groups))
        return b.kernel(op, kernel, (blocks,), ends, {"window": op.window}, defines=fixed)
    top, bottom, left, right = op.window.padding
    if (top, left) != (bottom, right) or x.dtype == BFLOAT:
        size = y.layout.size
        arguments = (x, y, i64(size), _numbers(b, op, x.layout, y.layout))
        kernel = ("pool.cu", "pool_forward", x.dtype)
        return b.kernel(op, kernel, size, arguments, {"window": op.window})
    cudnn = b.stream.cudnn
    pooling = cudnn.pooling(op.kind, op.window.kernel, (top, left), op.window.stride)
    source, target = (cudnn.tensor(end.layout.stored, end.layout.strides) for end in (x, y))
    given = (pooling, cudnn.one, source, x, cudnn.zero, target, y)
    shown = {"window": op.window, "x": op.x.shape}
    return b.cudnn(op, "cudnnPoolingForward", given, _shown(op, x.layout), **shown)


def kept(b: Binder, op: ops.Pool2d, x: Layout) -> tuple[Buffer, Maxima]:
    """What the maxima and their places are written to, for pictures that lie as ``x``."""
    known = b.decisions.maxima.get((op.x, op.y))
    if known is None:
        readers = b.graph.consumers(op.y)
        flat = [r for r in readers if isinstance(r, ops.Reshape)]
        backward = (ops.Pool2dBackward, ops.ActivationBackward)
        others = [r for r in readers if not isinstance(r, (ops.Reshape, *backward))]
        layout = b.geometry.picture(op.y.shape, x.dtype, compact=bool(flat) and not others)
        known = Maxima(b.zeros(layout.size, "uint8"), layout, x)
        b.decisions.maxima[op.x, op.y] = known
    return b.output(op.y, known.layout), known


def _max_pool(b: Binder, op: ops.Pool2d, x: Buffer) -> None:
    y, (index, layout, _) = kept(b, op, x.layout)
    outs = op.y.shape[0] * op.y.shape[2] * op.y.shape[3]
    # A plan that leaves them to this kernel is chosen only where the kernel serves.
    conv = b.graph.producer(op.x)
    bias, relu = None, False
    if isinstance(conv, ops.Conv2d) and isinstance(b.chosen(b.choice(conv, "forward")), Bare):
        bias, relu = conv.bias, conv.activation == "relu"
    windows = _windows(b, op, x.layout, layout)
    arguments = (x, y, index, outs, windows, bias, relu)
    kernel = ("max_pool.cu", "max_pool", x.dtype)
    fixed = _shape(op, x.layout, layout)
    threads = outs * x.layout.columns // dict(fixed)["EACH"]
    b.kernel(op, kernel, threads, arguments, {"window": op.window}, defines=fixed)


@binds(ops.Pool2dBackward)
def pool2d_backward(b: Binder, op: ops.Pool2dBackward) -> None:
    """An own kernel: cuDNN's maximum may break a tie otherwise, and is slow at scale."""
    maxima = b.decisions.maxima.get((op.x, op.y))
    if maxima is not None:
        return _max_pool_backward(b, op, maxima)
    dtype = b.number(op.dx)
    like = b.home(op.x or op.dy).layout
    stored = (op.dx.shape[0], like.columns, *op.dx.shape[2:])
    large = Layout(op.dx.shape, stored, like.nhwc, dtype=dtype)
    small = Layout(op.dy.shape, (*stored[:2], *op.dy.shape[2:]), like.nhwc, dtype=dtype)
    dy, dx = b.want(op.dy, small), b.output(op.dx, large)
    fixed = _apart(b, op, large, small)
    if fixed is not None:
        groups = large.size // dict(fixed)["EACH"]
        kernel = ("disjoint_pool.cu", "disjoint_pool_backward", dtype)
        ends = (dy, dx, u32(groups))
        return b.kernel(op, kernel, groups, ends, _shown(op, like), defines=fixed)
    x = b.want(op.x, large) if op.x is not None else dy
    pool, shown = _numbers(b, op, large, small), _shown(op, like)
    y = b.want(op.y, small) if op.y is not None else dy
    every = (x, y, dy, dx, i64(large.size), pool)
    return b.kernel(op, ("pool.cu", "pool_backward", dtype), large.size, every, shown)


def _disjoint(op: ops.Pool2dBackward) -> bool:
    """Whether windows lie side by side within the picture: all that fit, from its corner on."""
    window, places = op.window, zip(op.dx.shape[2:], op.window.stride, op.dy.shape[2:], strict=True)
    return (
        window.kernel == window.stride
        and not any(window.padding)
        and all(size // stride == count for size, stride, count in places)
    )


def _gradients(b: Binder, op: ops.Pool2dBackward) -> tuple[str, ...]:
    """The choices of the convolution's gradients that read dx; none if anything else does."""
    readers, kinds = b.graph.consumers(op.dx), dict(GRADIENTS)
    if not all(type(each) in kinds for each in readers):
        return ()
    return tuple(b.choice(each, kinds[type(each)]) for each in readers)


def masked(b: Binder, op: ops.Pool2dBackward) -> ops.ActivationBackward | None:
    """ReLU's gradient in front of a max-pool's that the kernel of that takes along, if any."""
    mask = b.graph.producer(op.dy)
    if not isinstance(mask, ops.ActivationBackward) or (op.x, op.y) not in b.decisions.maxima:
        return None
    alone = mask.kind == "relu" and mask.value == op.y and b.graph.consumers(op.dy) == [op]
    return mask if alone else None


def halved(b: Binder, op: ops.Pool2dBackward) -> Spread | None:
    """What gradients of the convolution in front may compute dx from, where windows of 2 by 2 lie
    side by side."""
    maxima = b.decisions.maxima.get((op.x, op.y))
    if maxima is None or op.window.kernel != (2, 2) or not _disjoint(op):
        return None
    if maxima.layout.dtype != b.arithmetic.dtype:
        return None
    mask = masked(b, op)
    dy = b.want(mask.dy if mask else op.dy, maxima.layout)
    return Spread(op, dy, maxima, op.y if mask else None)


def _max_pool_backward(b: Binder, op: ops.Pool2dBackward, maxima: Maxima) -> None:
    """dx by the index that forward kept; a ReLU before the pool and the bias's sum on the way.

    No launch where the gradients of the convolution before it take dy themselves.
    """
    index, layout, source = maxima
    mask, disjoint, spread = masked(b, op), _disjoint(op), halved(b, op)
    dy, y = b.want(mask.dy if mask else op.dy, layout), op.y if mask else None
    if spread is not None:
        keys = _gradients(b, op)
        if keys and all(isinstance(b.chosen(key), Through) for key in keys):
            return
        b.together.append(Together(keys, partial(b.seconds_of, op)))
    # As x lies: a picture of few channels is in fours only where an operation before made it so.
    dx_layout = replace(source, dtype=layout.dtype)
    dx = b.output(op.dx, dx_layout)
    stored = dx_layout.columns
    places = layout.size // layout.columns if disjoint else dx_layout.size // stored
    found = b.bias_gradient_of(op.dx)
    fixed = _shape(op, dx_layout, layout)
    lines = THREADS // (stored // dict(fixed)["EACH"])
    blocks = blocks_for(places, lines, MAX_BLOCKS if found is None else POOL_BLOCKS)
    sums = None if found is None else b.scratch(blocks * stored, "float32")
    windows = _windows(b, op, dx_layout, layout)
    arguments = (dy, index, y, dx, places, windows, sums)
    shown = {
        "window": op.window,
        "relu": mask is not None,
        "sums": found[1].name if found else "none",
    }
    name = "max_pool_backward_disjoint" if disjoint else "max_pool_backward"
    b.kernel(op, ("max_pool.cu", name, dx.dtype), (blocks,), arguments, shown, defines=fixed)
    if found is not None:
        b.slices(op, sums, 0, blocks, stored, found[1], found[1].size)
