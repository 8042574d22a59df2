"""Pooling, activation, scaling, softmax and reshape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...graph.graph import Tensor
from ...graph.ops import (
    FROM_OUTPUT,
    Activation,
    ActivationBackward,
    Pool2d,
    Pool2dBackward,
    Reshape,
    Scale,
    Softmax,
    SoftmaxBackward,
)
from .activations import WITHOUT_AVX2, apply, inexact, softplus_backward
from .bind import Binder, attempt, binds
from .classic import scaled_tanh, scaled_tanh_backward
from .constants import (
    DIFF_DST,
    DIFF_SRC,
    DST,
    ELTWISE_FROM_OUTPUT,
    ELTWISE_LINEAR,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    POOLING,
    SOFTMAX_ACCURATE,
    SRC,
    WORKSPACE,
)
from .epilogue import eltwise
from .fallback import reference
from .library import Dims
from .memory import Descriptor, Memory
from .primitive import PrimitiveDesc, reorder_desc


def _slide(op: Pool2d | Pool2dBackward) -> tuple[Any, ...]:
    top, bottom, left, right = op.window.padding
    return (
        Dims(*op.window.stride),
        Dims(*op.window.kernel),
        Dims(0, 0),
        Dims(top, left),
        Dims(bottom, right),
    )


def _pool_desc(
    op: Pool2d | Pool2dBackward, source: Descriptor, target: Tensor, trains: bool
) -> PrimitiveDesc | None:
    def arguments() -> tuple[Any, ...]:
        prop = FORWARD_TRAINING if trains else FORWARD_INFERENCE
        result = Descriptor.of(target.shape, "any", source.dtype)
        return (prop, POOLING[op.kind], source, result, *_slide(op), None)

    return attempt("pooling_forward", [arguments], {"window": op.window, "src": source})


@binds(Pool2d, narrow=True)
def pool2d(b: Binder, op: Pool2d) -> None:
    readers = [r for r in b.graph.consumers(op.y) if isinstance(r, Pool2dBackward)]
    x = b.source(op.x)
    desc = _pool_desc(op, x.descriptor, op.y, bool(readers))
    if desc is None:
        return reference(b, op)
    arguments = {SRC: x, DST: b.output(op.y, desc.descriptor(DST))}
    if readers:
        workspace = b.scratch(desc.descriptor(WORKSPACE)) if op.kind == "max" else None
        if workspace is not None:
            arguments[WORKSPACE] = workspace
        b.forwards[op.y] = (desc, workspace)
    return b.primitive(op, desc, arguments, {"window": op.window})


@binds(Pool2dBackward, narrow=True)
def pool2d_backward(b: Binder, op: Pool2dBackward) -> None:
    known = b.forwards.get(op.y) if op.y is not None else None
    hint, workspace = known if known is not None else _pool_again(b, op)
    if hint is None:
        return reference(b, op)
    source, target = hint.descriptor(SRC), hint.descriptor(DST)
    backward = (POOLING[op.kind], source, target, *_slide(op), hint, None)
    desc = attempt("pooling_backward", [lambda: backward], {"window": op.window})
    if desc is None:
        return reference(b, op)
    arguments = {
        DIFF_DST: b.want(op.dy, desc.descriptor(DIFF_DST)),
        DIFF_SRC: b.output(op.dx, desc.descriptor(DIFF_SRC)),
    }
    if workspace is not None:
        arguments[WORKSPACE] = workspace
    return b.primitive(op, desc, arguments, {"window": op.window})


def _pool_again(b: Binder, op: Pool2dBackward) -> tuple[PrimitiveDesc | None, Memory | None]:
    """The forward primitive where this section has none: max-pooling must find its maxima anew."""
    if op.kind == "avg" or op.x is None:
        known = b.source(op.dy).descriptor
        for layout in ("nchw", "nhwc", "nChw16c", "nChw8c"):
            if b.layout(op.dy.shape, layout) == known:
                return _pool_desc(op, b.layout(op.dx.shape, layout), op.dy, True), None
        return _pool_desc(op, b.layout(op.dx.shape), op.dy, True), None
    x = b.source(op.x)
    desc = _pool_desc(op, x.descriptor, op.dy, True)
    if desc is None:
        return None, None
    workspace = b.scratch(desc.descriptor(WORKSPACE))
    pooled = b.scratch(desc.descriptor(DST))
    arguments = {SRC: x, DST: pooled, WORKSPACE: workspace}
    b.primitive(op, desc, arguments, {"window": op.window})
    return desc, workspace


def _eltwise_desc(b: Binder, tensor: Tensor, kind: str, alpha: float) -> PrimitiveDesc | None:
    """Forward in the tensor's own layout, else row-major.

    A blocked layout with padded channels has no fast kernel where f(0) is not 0.
    """

    def candidate(layout: Descriptor) -> Callable[[], tuple[Any, ...]]:
        algorithm, slope = eltwise(kind, alpha)
        return lambda: (FORWARD_TRAINING, algorithm, layout, layout, slope, 0.0, None)

    layouts = (b.source(tensor).descriptor, b.layout(tensor.shape))
    candidates = [candidate(layout) for layout in layouts]
    return attempt("eltwise_forward", candidates, {"kind": kind})


@binds(Activation, narrow=True)
def activation(b: Binder, op: Activation) -> None:
    if op.kind == "scaled_tanh":
        return scaled_tanh(b, op)
    if inexact(op.kind, b.dtype):
        source = b.source(op.x)
        return apply(b, op, op.kind, op.alpha, source, b.output(op.y, source.descriptor))
    desc = _eltwise_desc(b, op.x, op.kind, op.alpha)
    if desc is None:
        return reference(b, op)
    layout = desc.descriptor(SRC)
    memories = {SRC: b.want(op.x, layout), DST: b.output(op.y, layout)}
    return b.primitive(op, desc, memories, {"kind": op.kind})


@binds(ActivationBackward, narrow=True)
def activation_backward(b: Binder, op: ActivationBackward) -> None:
    if op.kind == "scaled_tanh":
        return scaled_tanh_backward(b, op)
    if op.kind == "softplus" and inexact(op.kind, b.dtype):
        layout = b.source(op.value).descriptor
        dx = b.output(op.dx, layout)
        return softplus_backward(b, op, b.source(op.value), b.want(op.dy, layout), dx)
    hint = _eltwise_desc(b, op.value, op.kind, op.alpha)
    if hint is None or (op.kind in WITHOUT_AVX2 and inexact(op.kind, b.dtype)):
        return reference(b, op)
    layout = hint.descriptor(SRC)
    algorithm, alpha = eltwise(op.kind, op.alpha)
    algorithm = ELTWISE_FROM_OUTPUT.get(op.kind, algorithm)
    backward = (algorithm, layout, layout, layout, alpha, 0.0, hint, None)
    desc = attempt("eltwise_backward", [lambda: backward], {"kind": op.kind})
    if desc is None:
        return reference(b, op)
    value, dy = b.want(op.value, layout), b.want(op.dy, layout)
    if b.may_overwrite(op.dy):
        # In place the mask touches a third less memory.
        b.overwritten.add(op.dy)
        dx = dy.view(layout)
        b.alias(op.dx, dx)
    else:
        dx = b.output(op.dx, layout)
    memories = {DST if op.kind in FROM_OUTPUT else SRC: value, DIFF_DST: dy, DIFF_SRC: dx}
    return b.primitive(op, desc, memories, {"kind": op.kind})


@binds(Scale, narrow=True)
def scale(b: Binder, op: Scale) -> None:
    def candidate(layout: Descriptor) -> Callable[[], tuple[Any, ...]]:
        return lambda: (FORWARD_INFERENCE, ELTWISE_LINEAR, layout, layout, op.factor, 0.0, None)

    layouts = (b.source(op.x).descriptor, b.layout(op.x.shape))
    details = {"alpha": op.factor}
    desc = attempt("eltwise_forward", [candidate(layout) for layout in layouts], details)
    if desc is None:
        return reference(b, op)
    layout = desc.descriptor(SRC)
    memories = {SRC: b.want(op.x, layout), DST: b.output(op.y, layout)}
    return b.primitive(op, desc, memories, details)


@binds(Reshape, narrow=True)
def reshape(b: Binder, op: Reshape) -> None:
    """Row-major in, the same bytes out: at most one copy between layouts."""
    dtype = b.written_type(op.y)
    source = b.want(op.x, Descriptor.of(op.x.shape, "plain", dtype))
    source = source.view(Descriptor.of(op.y.shape, "plain", dtype))
    if op.y in b.memories:
        # A gradient's place in the arena is fixed: it is copied there.
        target = b.memories[op.y]
        desc = reorder_desc(source.descriptor, target.descriptor)
        return b.primitive(op, desc, {SRC: source, DST: target})
    return b.alias(op.y, source)


@binds(Softmax)
def softmax(b: Binder, op: Softmax) -> None:
    if len(op.x.shape) == 2 or op.log:
        return reference(b, op, "oneDNN's exponentials lose digits far below the largest")
    source = b.plain(op.x)
    layout = source.descriptor
    arguments = (FORWARD_TRAINING, SOFTMAX_ACCURATE, layout, layout, 1, None)
    desc = attempt("softmax_forward", [lambda: arguments], {"src": layout})
    if desc is None:
        return reference(b, op)
    return b.primitive(op, desc, {SRC: source, DST: b.output(op.y, layout)}, {"axis": 1})


@binds(SoftmaxBackward)
def softmax_backward(b: Binder, op: SoftmaxBackward) -> None:
    if op.log:
        return reference(b, op)
    y = b.plain(op.y)
    layout = y.descriptor
    forward = (FORWARD_TRAINING, SOFTMAX_ACCURATE, layout, layout, 1, None)
    hint = attempt("softmax_forward", [lambda: forward], {"src": layout})
    if hint is None:
        return reference(b, op)
    backward = (SOFTMAX_ACCURATE, layout, layout, layout, 1, hint, None)
    desc = attempt("softmax_backward", [lambda: backward], {"src": layout})
    if desc is None:
        return reference(b, op)
    memories = {DST: y, DIFF_DST: b.plain(op.dy), DIFF_SRC: b.output(op.dx, layout)}
    return b.primitive(op, desc, memories, {"axis": 1})
