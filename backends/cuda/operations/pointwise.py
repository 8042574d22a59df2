"""Activation, softmax and reshape: cuDNN where it has them as we mean them."""

from __future__ import annotations

from ctypes import c_int, c_void_p
from dataclasses import replace
from functools import partial

from ....graph.graph import Tensor
from ....graph.ops import (
    ACTIVATIONS,
    Activation,
    ActivationBackward,
    Pool2dBackward,
    Reshape,
    Softmax,
    SoftmaxBackward,
)
from ..binding.bind import Binder, binds
from ..binding.store import Buffer
from ..binding.wide import EIGHT, activate_wide, in_eights, inner, row, wide
from ..libraries.cudnn_library import ACTIVATION, MODE_CHANNEL, SOFTMAX_ACCURATE, SOFTMAX_LOG
from ..libraries.kernels import THREADS, f32, i32, i64, linear_grid
from ..libraries.layout import BFLOAT, Layout, plain

# Blocks of a kernel that also sums up its rows; each leaves a slice.
SUMMING_BLOCKS = 1056
MOST_GROUPS = THREADS


def _flat(b: Binder, size: int) -> c_void_p:
    """A descriptor of this many floats in a row, padding included."""
    owned = b.keep(b.stream.cudnn.tensor((1, 1, 1, size), (size, size, size, 1)))
    return c_void_p(owned.handle)


@binds(Activation)
def activation(b: Binder, op: Activation) -> None:
    """cudnnActivationForward; an own kernel for what it lacks, and in bfloat16.

    Its ELU takes 1 from e^x, which leaves no digits near 0.
    """
    x = b.home(op.x)
    x = b.want(op.x, replace(x.layout, dtype=b.number(op.y)))
    y = b.output(op.y, x.layout)
    zero_stays = op.kind not in ("sigmoid", "softplus") or x.layout.shape == x.layout.stored
    if op.kind not in ACTIVATION or x.dtype == BFLOAT or not zero_stays:
        kind = i32(ACTIVATIONS.index(op.kind))
        if wide(x.layout):
            return activate_wide(b, op, (x, 0, y), int(kind), op.alpha)
        channels, stored = row(x.layout)
        arguments = (
            *(x.array, y.array, i64(x.layout.size), i32(channels), i32(stored)),
            *(i32(inner(x.layout)), kind, f32(op.alpha)),
        )
        kernel = ("elementwise.cu", "activation_forward", x.dtype)
        return b.kernel(op, kernel, linear_grid(x.layout.size), arguments, {"kind": op.kind})
    cudnn = b.stream.cudnn
    chosen = b.keep(cudnn.activation(op.kind, op.alpha))
    flat = _flat(b, x.layout.size)
    launch = partial(
        cudnn.call,
        "cudnnActivationForward",
        *(c_void_p(cudnn.handle), c_void_p(chosen.handle), cudnn.one, flat, c_void_p(x.pointer)),
        *(cudnn.zero, flat, c_void_p(y.pointer)),
        kind=op.kind,
        size=op.x.size,
    )
    return b.add(op, "cuDNN", "cudnnActivationForward", launch, {"kind": op.kind})


@binds(ActivationBackward)
def activation_backward(b: Binder, op: ActivationBackward) -> None:
    """An own kernel for every kind: cuDNN's wants forward's input and output both.

    Where the sum of dx over its rows is a bias's gradient, it is taken on the way.
    """
    if _left_to_pool(b, op):
        b.decisions.masked.add(op)
        return
    layout = replace(b.home(op.value).layout, dtype=b.number(op.dx))
    value, dy, dx = b.want(op.value, layout), b.want(op.dy, layout), b.output(op.dx, layout)
    kind, dtype = ACTIVATIONS.index(op.kind), dx.dtype
    fixed = (("KIND", kind),)
    found = b.bias_gradient_of(op.dx)
    _, stored = row(layout)
    groups = stored // 4
    if found is None or inner(layout) > 1 or stored % 4 or groups > MOST_GROUPS or layout.picture:
        shown = {"kind": op.kind}
        pointers = (value.array, dy.array, dx.array)
        if in_eights(layout):
            eights = layout.size // EIGHT
            kernel = ("activation.cu", "wide_activation_backward", dtype)
            wider = (*pointers, i32(eights), f32(op.alpha))
            return b.kernel(op, kernel, linear_grid(eights), wider, shown, defines=fixed)
        kernel = ("elementwise.cu", "activation_backward", dtype)
        arguments = (*pointers, i64(layout.size), i32(kind), f32(op.alpha))
        return b.kernel(op, kernel, linear_grid(layout.size), arguments, shown)
    owner, db = found
    rows = layout.size // stored
    blocks = max(1, min(SUMMING_BLOCKS, -(-rows // (THREADS // groups))))
    sums = b.scratch(blocks * stored, "float32")
    given = (value.array, dy.array, dx.array, i64(rows), i32(groups), f32(op.alpha), sums)
    kernel = ("activation.cu", "activation_backward_sums", dtype)
    b.kernel(op, kernel, (blocks,), given, {"kind": op.kind, "sums": db.name}, defines=fixed)
    b.decisions.summed.add(owner)
    return b.slices(op, sums, 0, blocks, stored, db, db.size)


def _left_to_pool(b: Binder, op: ActivationBackward) -> bool:
    """Whether the only reader is a max-pool's backward that masks as it goes."""
    readers = b.graph.consumers(op.dx)
    pool = readers[0] if len(readers) == 1 else None
    return (
        op.kind == "relu"
        and isinstance(pool, Pool2dBackward)
        and pool.y == op.value
        and (pool.x, pool.y) in b.decisions.maxima
    )


@binds(Reshape)
def reshape(b: Binder, op: Reshape) -> None:
    """The same bytes under another shape: rows of a picture keep the picture's order of channels.

    At most one change of layout, where the picture is padded.
    """
    rules, dtype = b.geometry, b.home(op.x).layout.dtype
    source, target = op.x.shape, op.y.shape
    planned = b.planned(op.y)
    if planned is not None:
        # A gradient, whose place the update knows.
        rows = Buffer(b.want(op.x, plain(source, dtype)).array, plain(target, dtype))
        return b.convert(rows, b.output(op.y, planned), op.y.name)
    if len(source) == 4 and len(target) == 2:
        layout = rules.rows(target, dtype, source[1:])
        near = b.home(op.x).layout
        dense = rules.picture(source, dtype, compact=True)
        if near.same(dense) and layout.size == near.size:
            return b.alias(op.y, b.home(op.x), layout)
        if layout.picture is not None:
            return _convert(b, op, layout)
    if len(source) == 2 and len(target) == 4:
        held = b.home(op.x)
        dense = rules.picture(target, dtype, compact=True)
        if held.layout.picture == target[1:] and dense.size == held.layout.size:
            return b.alias(op.y, held, dense)
        if held.layout.picture == target[1:]:
            return _convert(b, op, dense)
    x = b.want(op.x, plain(source, dtype))
    return b.alias(op.y, x, plain(target, dtype))


def _convert(b: Binder, op: Reshape, layout: Layout) -> None:
    """Copy x into rows of its picture, or back."""
    source = b.home(op.x)
    b.convert(source, b.output(op.y, layout), op.y.name)


def _softmax(
    b: Binder, op: Softmax | SoftmaxBackward, function: str, tensor: Tensor, pointers: list[int]
) -> None:
    cudnn = b.stream.cudnn
    shape = tensor.shape if len(tensor.shape) == 4 else (*tensor.shape, 1, 1)
    _, c, h, w = shape
    owned = b.keep(cudnn.tensor(shape, (c * h * w, h * w, w, 1)))
    descriptor = c_void_p(owned.handle)
    *sources, target = pointers
    operands = [part for p in sources for part in (descriptor, c_void_p(p))]
    algorithm = SOFTMAX_LOG if op.log else SOFTMAX_ACCURATE
    launch = partial(
        cudnn.call,
        function,
        *(c_void_p(cudnn.handle), c_int(algorithm), c_int(MODE_CHANNEL), cudnn.one),
        *(*operands, cudnn.zero, descriptor, c_void_p(target)),
        shape=shape,
    )
    b.add(op, "cuDNN", function, launch, {"axis": 1} | ({"log": True} if op.log else {}))


@binds(Softmax)
def softmax(b: Binder, op: Softmax) -> None:
    _softmax(b, op, "cudnnSoftmaxForward", op.x, [b.floats(op.x).pointer, b.output(op.y).pointer])


@binds(SoftmaxBackward)
def softmax_backward(b: Binder, op: SoftmaxBackward) -> None:
    pointers = [b.floats(op.y).pointer, b.floats(op.dy).pointer, b.output(op.dx).pointer]
    _softmax(b, op, "cudnnSoftmaxBackward", op.y, pointers)
