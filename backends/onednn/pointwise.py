"""Pooling, activation, scaling, softmax and reshape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graph import ops
from ...graph.graph import Tensor
from .activations import INEXACT_SLOPES, Function, apply, eltwise, inexact, softplus_backward
from .bind import BOTH, Binder, binds
from .classic import scaled_tanh, scaled_tanh_backward
from .constants import (
    ELTWISE_FROM_OUTPUT,
    ELTWISE_LINEAR,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    POOLING,
    SOFTMAX_ACCURATE,
)
from .fallback import reference
from .library import Dims
from .memory import Descriptor, Memory
from .primitive import NoFastKernel, PrimitiveDesc, first_fast, reorder_desc


def _slide(op: ops.Pool2d | ops.Pool2dBackward) -> tuple[Any, ...]:
    top, bottom, left, right = op.window.padding
    sides = (op.window.stride, op.window.kernel, (0, 0), (top, left), (bottom, right))
    return tuple(Dims(*side) for side in sides)


def _pool_desc(
    op: ops.Pool2d | ops.Pool2dBackward, source: Descriptor, target: Tensor, trains: bool
) -> PrimitiveDesc:
    prop = FORWARD_TRAINING if trains else FORWARD_INFERENCE
    result = Descriptor.of(target.shape, "any", source.dtype)
    arguments = (prop, POOLING[op.kind], source, result, *_slide(op), None)
    return first_fast("pooling_forward", [arguments], {"window": op.window, "src": source})


def _integers(b: Binder, tensor: Tensor) -> Memory | None:
    """The memory of an activation that is kept in a byte each; None for another."""
    memory = b.memories.get(tensor)
    return memory if memory and memory.descriptor.dtype in ("uint8", "int8") else None


@binds(ops.Pool2d, dtypes=BOTH)
def pool2d(b: Binder, op: ops.Pool2d) -> None:
    readers = [r for r in b.graph.consumers(op.y) if isinstance(r, ops.Pool2dBackward)]
    x = _integers(b, op.x) if op.kind == "max" else None
    desc = _pool_desc(op, (x or b.source(op.x)).descriptor, op.y, bool(readers))
    workspace = None
    if readers:
        workspace = b.scratch(desc.descriptor("workspace")) if op.kind == "max" else None
        b.forwards[op.y] = (desc, workspace)
    b.tensors(
        op, desc, {"src": op.x}, {"dst": op.y}, {"window": op.window}, {"workspace": workspace}
    )


@binds(ops.Pool2dBackward, dtypes=BOTH)
def pool2d_backward(b: Binder, op: ops.Pool2dBackward) -> None:
    known = b.forwards.get(op.y) if op.y is not None else None
    hint, workspace = known if known is not None else _pool_again(b, op)
    source, target = hint.descriptor("src"), hint.descriptor("dst")
    details = {"window": op.window}
    backward = (POOLING[op.kind], source, target, *_slide(op), hint, None)
    desc = first_fast("pooling_backward", [backward], details)
    b.tensors(op, desc, {"diff_dst": op.dy}, {"diff_src": op.dx}, details, {"workspace": workspace})


def _pool_again(b: Binder, op: ops.Pool2dBackward) -> tuple[PrimitiveDesc, None]:
    """The forward primitive of an average where this section has none."""
    if op.kind == "max":
        # Its places of the maxima are forward's alone.
        raise NoFastKernel
    known = b.source(op.dy).descriptor
    names = ("nchw", "nhwc", "nChw16c", "nChw8c")
    alike = (name for name in names if b.layout(op.dy.shape, name) == known)
    layout = b.layout(op.dx.shape, next(alike, "plain"))
    return _pool_desc(op, layout, op.dy, True), None


def _eltwise_desc(
    b: Binder, tensor: Tensor, prop: int, function: Function, details: Mapping[str, object]
) -> PrimitiveDesc:
    """Forward in the tensor's own layout, else row-major; function: algorithm, alpha and beta.

    A blocked layout with padded channels has no fast kernel where f(0) is not 0.
    """
    algorithm, *numbers = function
    layouts = (b.source(tensor).descriptor, b.layout(tensor.shape))
    candidates = [(prop, algorithm, each, each, *numbers, None) for each in layouts]
    return first_fast("eltwise_forward", candidates, details)


@binds(ops.Activation, dtypes=BOTH)
def activation(b: Binder, op: ops.Activation) -> None:
    if op.kind == "scaled_tanh":
        return scaled_tanh(b, op)
    if inexact(op.kind, b.dtype):
        source = b.source(op.x)
        return apply(b, op, op.kind, op.alpha, source, b.output(op.y, source.descriptor))
    details = {"kind": op.kind}
    desc = _eltwise_desc(b, op.x, FORWARD_TRAINING, eltwise(op.kind, op.alpha), details)
    b.tensors(op, desc, {"src": op.x}, {"dst": op.y}, details)
    return None


@binds(ops.ActivationBackward, dtypes=BOTH)
def activation_backward(b: Binder, op: ops.ActivationBackward) -> None:
    if op.kind == "scaled_tanh":
        return scaled_tanh_backward(b, op)
    if op.kind == "softplus" and inexact(op.kind, b.dtype):
        layout = b.source(op.value).descriptor
        dx = b.output(op.dx, layout)
        return softplus_backward(b, op, b.source(op.value), b.want(op.dy, layout), dx)
    if op.kind in INEXACT_SLOPES and inexact(op.kind, b.dtype):
        return reference(b, op)
    details = {"kind": op.kind}
    algorithm, *numbers = function = eltwise(op.kind, op.alpha)
    hint = _eltwise_desc(b, op.value, FORWARD_TRAINING, function, details)
    layout = hint.descriptor("src")
    algorithm = ELTWISE_FROM_OUTPUT.get(op.kind, algorithm)
    backward = (algorithm, layout, layout, layout, *numbers, hint, None)
    desc = first_fast("eltwise_backward", [backward], details)
    value, dy = b.want(op.value, layout), b.want(op.dy, layout)
    if b.may_overwrite(op.dy):
        # In place the mask touches a third less memory.
        b.overwritten.add(op.dy)
        dx = dy.view(layout)
        b.alias(op.dx, dx)
    else:
        dx = b.output(op.dx, layout)
    memories = {
        "dst" if op.kind in ops.FROM_OUTPUT else "src": value,
        "diff_dst": dy,
        "diff_src": dx,
    }
    return b.primitive(op, desc, memories, details)


@binds(ops.Scale, dtypes=BOTH)
def scale(b: Binder, op: ops.Scale) -> None:
    details = {"alpha": op.factor}
    desc = _eltwise_desc(b, op.x, FORWARD_INFERENCE, (ELTWISE_LINEAR, op.factor, 0.0), details)
    b.tensors(op, desc, {"src": op.x}, {"dst": op.y}, details)


@binds(ops.Reshape, dtypes=BOTH)
def reshape(b: Binder, op: ops.Reshape) -> None:
    """Row-major in, the same bytes out: at most one copy between layouts."""
    integers = _integers(b, op.x)
    dtype = b.written_type(op.y) if integers is None else integers.descriptor.dtype
    source = b.want(op.x, Descriptor.of(op.x.shape, "plain", dtype))
    source = source.view(Descriptor.of(op.y.shape, "plain", dtype))
    if op.y in b.memories:
        # A gradient's place in the arena is fixed: it is copied there.
        target = b.memories[op.y]
        desc = reorder_desc(source.descriptor, target.descriptor)
        return b.primitive(op, desc, {"src": source, "dst": target})
    return b.alias(op.y, source)


@binds(ops.Softmax)
def softmax(b: Binder, op: ops.Softmax) -> None:
    if len(op.x.shape) == 2 or op.log:
        return reference(b, op, "oneDNN's exponentials lose digits far below the largest")
    b.tensors(op, _softmax_desc(op.x), {"src": op.x}, {"dst": op.y}, {"axis": 1})
    return None


def _softmax_desc(tensor: Tensor) -> PrimitiveDesc:
    layout = Descriptor.of(tensor.shape)
    arguments = (FORWARD_TRAINING, SOFTMAX_ACCURATE, layout, layout, 1, None)
    return first_fast("softmax_forward", [arguments], {"src": layout})


@binds(ops.SoftmaxBackward)
def softmax_backward(b: Binder, op: ops.SoftmaxBackward) -> None:
    if op.log:
        raise NoFastKernel
    layout = Descriptor.of(op.y.shape)
    backward = (SOFTMAX_ACCURATE, layout, layout, layout, 1, _softmax_desc(op.y), None)
    desc = first_fast("softmax_backward", [backward], {"src": layout})
    b.tensors(op, desc, {"dst": op.y, "diff_dst": op.dy}, {"diff_src": op.dx}, {"axis": 1})
