"""Activation, softmax and reshape: cuDNN where it has them as we mean them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ....graph import ops
from ....graph.graph import Tensor
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..binding.choices import Through
from ..binding.decisions import Spread, Together
from ..binding.wide import EIGHT, activate_wide, in_eights, inner, kind_of, row, wide
from ..fused.pattern import single
from ..libraries.cudnn_library import ACTIVATION, MODE_CHANNEL, SOFTMAX_ACCURATE, SOFTMAX_LOG
from ..libraries.kernels import THREADS, blocks_for, f32, i64
from ..libraries.layout import BFLOAT, plain
from .pool import halved, masked

# Blocks of a kernel that also sums up its rows, by the channels of a thread: as many as an H200 has
# at once. Each leaves a slice.
SUMMING_BLOCKS = {4: 528, EIGHT: 396}
MOST_GROUPS = THREADS


@binds(ops.Activation)
def activation(b: Binder, op: ops.Activation) -> None:
    """cudnnActivationForward; an own kernel for what it lacks, and in bfloat16.

    Its ELU takes 1 from e^x, which leaves no digits near 0.
    """
    x = b.want(op.x, replace(b.home(op.x).layout, dtype=b.number(op.y)))
    y, layout = b.output(op.y, x.layout), x.layout
    zero_stays = op.kind not in ops.RAISED or layout.shape == layout.stored
    if op.kind not in ACTIVATION or x.dtype == BFLOAT or not zero_stays:
        kind = kind_of(op.kind)
        if wide(layout):
            return activate_wide(b, op, (x, None, y), kind, op.alpha)
        where = (i64(layout.size), *row(layout), inner(layout))
        kernel = ("elementwise.cu", "activation_forward", x.dtype)
        given = (x, y, *where, kind, f32(op.alpha))
        return b.kernel(op, kernel, layout.size, given, {"kind": op.kind})
    cudnn = b.stream.cudnn
    # Padding included.
    flat = cudnn.plain((1, 1, 1, layout.size))
    ends = (cudnn.activation(op.kind, op.alpha), cudnn.one, flat, x, cudnn.zero, flat, y)
    shown = {"kind": op.kind}
    return b.cudnn(op, "cudnnActivationForward", ends, shown, **shown, size=op.x.size)


@binds(ops.ActivationBackward)
def activation_backward(b: Binder, op: ops.ActivationBackward) -> None:
    """An own kernel for every kind: cuDNN's wants forward's input and output both.

    Where the sum of dx over its rows is a bias's gradient, it is taken on the way; and dx is not
    stored then if nothing else reads it. No launch where the gradient of the filters before it
    takes dy itself.
    """
    pool = single(b.graph.consumers(op.dx), ops.Pool2dBackward)
    if pool is not None and masked(b, pool):
        return None
    if op.value in b.decisions.again:
        return b.decisions.again[op.value](op)
    layout = replace(b.home(op.value).layout, dtype=b.number(op.dx))
    value, dy = b.want(op.value, layout), b.want(op.dy, layout)
    if _sloped(b, op):
        (reader,) = b.graph.consumers(op.dx)
        key = b.choice(reader, "filter")
        b.together.append(Together((key,), partial(b.seconds_of, op)))
        if isinstance(b.chosen(key), Through):
            return None
    alpha, shown = f32(op.alpha), {"kind": op.kind}
    kind, dtype, size = kind_of(op.kind), layout.dtype, layout.size
    fixed = (("KIND", kind),)
    found = b.bias_gradient_of(op.dx)
    _, stored = row(layout)
    each = EIGHT if dtype == BFLOAT and stored % EIGHT == 0 else 4
    groups = stored // each
    if found is None or inner(layout) > 1 or stored % 4 or groups > MOST_GROUPS or layout.picture:
        ends = (value, dy, b.output(op.dx, layout))
        if in_eights(layout):
            eights, kernel = size // EIGHT, ("activation.cu", "wide_activation_backward", dtype)
            return b.kernel(op, kernel, eights, (*ends, eights, alpha), shown, defines=fixed)
        kernel = ("elementwise.cu", "activation_backward", dtype)
        return b.kernel(op, kernel, size, (*ends, i64(size), kind, alpha), shown)
    owner, db = found
    rows = size // stored
    blocks = blocks_for(rows, THREADS // groups, SUMMING_BLOCKS[each])
    sums = b.scratch(blocks * stored, "float32")
    alone = single(b.graph.consumers(op.dx), ops.BiasGrad) is owner
    stored_too = not alone or op.dx in b.graph.results.values()
    dx = b.output(op.dx, layout) if stored_too else None
    given = (value, dy, dx, i64(rows), groups, alpha, sums)
    kernel = ("activation.cu", "activation_backward_sums", dtype)
    b.kernel(
        op, kernel, (blocks,), given, shown | {"sums": db.name}, defines=(*fixed, ("EACH", each))
    )
    return b.slices(op, sums, 0, blocks, stored, db, db.size)


def _sloped(b: Binder, op: ops.ActivationBackward) -> Spread | None:
    """What a gradient of filters that alone reads dx may compute it from.

    So it may be behind a first layer, which needs no gradient of its pictures.
    """
    reader = single(b.graph.consumers(op.dx), ops.Conv2dBackwardFilter)
    if reader is None:
        return None
    layout = replace(b.home(op.value).layout, dtype=b.number(op.dx))
    picture = b.geometry.picture(op.dx.shape, b.arithmetic.dtype, compact=reader.groups > 1)
    if not (picture.nhwc and layout.same(picture) and layout.dtype == picture.dtype):
        return None
    return Spread(op, b.want(op.dy, layout), None, b.want(op.value, layout))


def spread_of(b: Binder, dy: Tensor) -> Spread | None:
    """What the kernel of a convolution's gradient may compute its dy from, on the way."""
    match b.graph.producer(dy):
        case ops.Pool2dBackward() as pool:
            return halved(b, pool)
        case ops.ActivationBackward() as activation:
            return _sloped(b, activation)
    return None


@binds(ops.Reshape)
def reshape(b: Binder, op: ops.Reshape) -> None:
    """The same bytes under another shape: rows of a picture keep the picture's order of channels.

    At most one change of layout, where the picture is padded.
    """
    held, rules = b.home(op.x), b.geometry
    dtype, source, target = held.dtype, op.x.shape, op.y.shape
    planned = b.planned(op.y)
    if planned is not None:
        # A gradient, whose place the update knows.
        rows = Buffer(b.want(op.x, plain(source, dtype)).array, plain(target, dtype))
        return b.convert(rows, b.output(op.y, planned), op.y.name)
    if len(source) == 4 and len(target) == 2:
        layout = rules.rows(target, dtype, source[1:])
        dense = rules.picture(source, dtype, compact=True)
        if held.layout.same(dense) and layout.size == dense.size:
            return b.alias(op.y, held, layout)
        if layout.picture is not None:
            return b.convert(held, b.output(op.y, layout), op.y.name)
    if len(source) == 2 and len(target) == 4 and held.layout.picture == target[1:]:
        dense = rules.picture(target, dtype, compact=True)
        if dense.size == held.layout.size:
            return b.alias(op.y, held, dense)
        return b.convert(held, b.output(op.y, dense), op.y.name)
    return b.alias(op.y, b.want(op.x, plain(source, dtype)), plain(target, dtype))


def _softmax(
    b: Binder,
    op: ops.Softmax | ops.SoftmaxBackward,
    function: str,
    *operands: Tensor,
    result: Tensor,
) -> None:
    cudnn, tensor = b.stream.cudnn, b.stream.cudnn.plain(result.shape)
    algorithm = SOFTMAX_LOG if op.log else SOFTMAX_ACCURATE
    inputs = [part for each in operands for part in (tensor, b.floats(each))]
    given = (algorithm, MODE_CHANNEL, cudnn.one, *inputs, cudnn.zero, tensor, b.output(result))
    shape = result.shape if len(result.shape) == 4 else (*result.shape, 1, 1)
    shown = {"axis": 1} | ({"log": True} if op.log else {})
    b.cudnn(op, function, given, shown, shape=shape)


@binds(ops.Softmax)
def softmax(b: Binder, op: ops.Softmax) -> None:
    _softmax(b, op, "cudnnSoftmaxForward", op.x, result=op.y)


@binds(ops.SoftmaxBackward)
def softmax_backward(b: Binder, op: ops.SoftmaxBackward) -> None:
    _softmax(b, op, "cudnnSoftmaxBackward", op.y, op.dy, result=op.dx)
