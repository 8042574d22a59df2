"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...graph.graph import Op, Shape, Tensor
from ...graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter
from .bind import Binder, attempt, binds
from .constants import (
    BIAS,
    CONVOLUTION_DIRECT,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    FORWARD_TRAINING,
    SRC,
    WEIGHTS,
)
from .epilogue import activate_behind, forward_kind, post_ops
from .fallback import reference
from .library import Dims, library
from .memory import Descriptor
from .primitive import Attributes, PrimitiveDesc
from .selfcheck import is_right

Convolution = Conv2d | Conv2dBackwardData | Conv2dBackwardFilter
Types = tuple[str, str, str]


def layer_of(op: Op) -> str:
    """The layer whose choice an operation follows."""
    return op.origin[0].layer if op.origin else ""


def candidate_layouts() -> tuple[str, ...]:
    """The layouts worth trying for a convolution on this machine."""
    return (f"nChw{library().lanes()}c", "nhwc")


def default_layout(channels: int) -> str:
    """Without a trial: channels in blocks, but NHWC for pictures of one channel."""
    return "nhwc" if channels == 1 else candidate_layouts()[0]


class ConvDescriptors:
    """The descriptors of one convolution for a layout: source, weights, bias, destination.

    ``types``: of source, weights and destination.
    """

    def __init__(
        self, x: Tensor, w: Tensor, y: Tensor, groups: int, layout: str, types: Types
    ) -> None:
        blocked = layout.startswith("nChw")
        # Oihw16o kernels read pictures of 1 or 3 channels unblocked.
        source = "nchw" if blocked and x.shape[1] < 8 else layout
        self.src = Descriptor.of(x.shape, source, types[0])
        self.weights = Descriptor.of(filter_shape(w, groups), "any", types[1])
        self.dst = Descriptor.of(y.shape, layout, types[2])
        self.bias = Descriptor.of((w.shape[0],))


def filter_shape(w: Tensor, groups: int) -> Shape:
    """(O, I, kh, kw), or (groups, O / groups, I, kh, kw)."""
    return w.shape if groups == 1 else (groups, w.shape[0] // groups, *w.shape[1:])


def _slide(op: Convolution) -> tuple[Any, ...]:
    top, bottom, left, right = op.window.padding
    strides, dilation = op.window.stride, op.window.dilation
    holes = (dilation[0] - 1, dilation[1] - 1)
    return Dims(*strides), Dims(*holes), Dims(top, left), Dims(bottom, right)


def _details(op: Convolution) -> dict[str, object]:
    shown: dict[str, object] = {"window": op.window}
    if op.groups > 1:
        shown["groups"] = op.groups
    if isinstance(op, Conv2d) and op.activation is not None:
        shown["post_op"] = op.activation
    return shown


def _forward_desc(
    x: Tensor,
    w: Tensor,
    y: Tensor,
    op: Convolution,
    layouts: Iterable[str],
    types: Types,
    prop: int = FORWARD_TRAINING,
    bias: bool = False,
    post: Attributes | None = None,
) -> PrimitiveDesc | None:
    def candidate(layout: str) -> Callable[[], tuple[Any, ...]]:
        def arguments() -> tuple[Any, ...]:
            d = ConvDescriptors(x, w, y, op.groups, layout, types)
            shared = d.bias if bias else None
            return (prop, CONVOLUTION_DIRECT, d.src, d.weights, shared, d.dst, *_slide(op), post)

        return arguments

    return attempt("convolution_forward", [candidate(layout) for layout in layouts], _details(op))


def _layouts(choices: Mapping[str, str], name: str, channels: int) -> tuple[str, ...]:
    """The chosen layout first, then what any geometry has."""
    chosen = choices.get(name) or choices.get(name.partition("/")[0]) or default_layout(channels)
    return tuple(dict.fromkeys((chosen, *candidate_layouts(), "nchw")))


def _forward_layouts(op: Convolution, choices: Mapping[str, str], x: Tensor) -> tuple[str, ...]:
    return _layouts(choices, layer_of(op), x.shape[1])


def wanted_layout(op: Conv2d, choices: Mapping[str, str]) -> str:
    """The name of the layout in which a convolution would have its source."""
    return _forward_layouts(op, choices, op.x)[0]


@binds(Conv2d, narrow=True)
def conv2d(b: Binder, op: Conv2d) -> None:
    desc = _forward_desc(
        op.x,
        op.w,
        op.y,
        op,
        _forward_layouts(op, b.choices, op.x),
        (b.dtype, b.dtype, b.written_type(op.y)),
        forward_kind(b.graph),
        op.bias is not None,
        post_ops(op, b.written_type(op.y)),
    )
    if desc is None:
        return reference(b, op)
    arguments = {
        SRC: b.want(op.x, desc.descriptor(SRC)),
        WEIGHTS: b.want(op.w, desc.descriptor(WEIGHTS)),
        DST: b.output(op.y, desc.descriptor(DST)),
    }
    if op.bias is not None:
        arguments[BIAS] = b.home(op.bias)
    b.primitive(op, desc, arguments, _details(op))
    return activate_behind(b, op, arguments[DST])


@binds(Conv2dBackwardData, narrow=True)
def conv2d_backward_data(b: Binder, op: Conv2dBackwardData) -> None:
    layouts = _layouts(b.choices, f"{layer_of(op)}/data", op.dx.shape[1])
    forward = _forward_layouts(op, b.choices, op.dx)
    hint = _forward_desc(op.dx, op.w, op.dy, op, forward, (b.dtype,) * 3)
    if hint is None:
        return reference(b, op)

    def candidate(layout: str) -> Callable[[], tuple[Any, ...]]:
        def arguments() -> tuple[Any, ...]:
            types = (b.written_type(op.dx), b.dtype, b.dtype)
            d = ConvDescriptors(op.dx, op.w, op.dy, op.groups, layout, types)
            return (CONVOLUTION_DIRECT, d.src, d.weights, d.dst, *_slide(op), hint, None)

        return arguments

    kind = "convolution_backward_data"
    desc = attempt(kind, [candidate(layout) for layout in layouts], _details(op))
    if desc is None:
        return reference(b, op)
    arguments = {
        DIFF_DST: b.want(op.dy, desc.descriptor(DIFF_DST)),
        WEIGHTS: b.want(op.w, desc.descriptor(WEIGHTS)),
        DIFF_SRC: b.output(op.dx, desc.descriptor(DIFF_SRC)),
    }
    return b.primitive(op, desc, arguments, _details(op))


def filter_gradient_desc(
    op: Conv2dBackwardFilter, choices: Mapping[str, str], dtype: str
) -> PrimitiveDesc | None:
    """The filter gradient's primitive: its layout of the weights is the parameters' layout.

    The gradient is float32, whatever the type of x and dy.
    """
    forward = _forward_layouts(op, choices, op.x)
    for layout in _layouts(choices, f"{layer_of(op)}/filter", op.x.shape[1]):

        def describe(
            op: Conv2dBackwardFilter, attributes: Attributes | None = None, layout: str = layout
        ) -> PrimitiveDesc | None:
            return _filter_gradient(op, (layout, forward), dtype, attributes)

        desc = describe(op)
        if desc is None:
            continue
        if is_right(op, desc, describe):
            return desc
        if dtype != "float32":
            # Its fast kernels in float32 are many times faster than what bfloat16 has left.
            return None
    return None


def _filter_gradient(
    op: Conv2dBackwardFilter,
    layouts: tuple[str, tuple[str, ...]],
    dtype: str,
    attributes: Attributes | None,
) -> PrimitiveDesc | None:
    """In one layout, beside a forward in one of several."""
    layout, forward = layouts
    hint = _forward_desc(op.x, op.dw, op.dy, op, forward, (dtype,) * 3)
    if hint is None:
        return None

    def arguments() -> tuple[Any, ...]:
        types = (dtype, "float32", dtype)
        d = ConvDescriptors(op.x, op.dw, op.dy, op.groups, layout, types)
        bias = d.bias if op.bias_grad is not None else None
        shapes = (d.src, d.weights, bias, d.dst)
        return (CONVOLUTION_DIRECT, *shapes, *_slide(op), hint, attributes)

    return attempt("convolution_backward_weights", [arguments], _details(op))


@binds(Conv2dBackwardFilter, narrow=True)
def conv2d_backward_filter(b: Binder, op: Conv2dBackwardFilter) -> None:
    desc = filter_gradient_desc(op, b.choices, b.dtype)
    if desc is None:
        return reference(b, op)
    arguments = {
        SRC: b.want(op.x, desc.descriptor(SRC)),
        DIFF_DST: b.want(op.dy, desc.descriptor(DIFF_DST)),
        DIFF_WEIGHTS: b.output(op.dw, desc.descriptor(DIFF_WEIGHTS)),
    }
    if op.bias_grad is not None:
        arguments[DIFF_BIAS] = b.output(op.bias_grad, Descriptor.of(op.bias_grad.shape))
    details = _details(op)
    if b.narrow and b.dtype == "float32":
        details["reason"] = "oneDNN has no correct bfloat16 kernel for it"
    return b.primitive(op, desc, arguments, details)
