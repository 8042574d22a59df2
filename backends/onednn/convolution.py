"""Convolutions and their gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...graph.graph import Op, Tensor
from ...graph.ops import Conv2d, Conv2dBackwardData, Conv2dBackwardFilter
from .activations import activate_behind, post_ops
from .bind import BOTH, Binder, binds
from .constants import CONVOLUTION_DIRECT, FORWARD_TRAINING
from .library import Dims, library
from .memory import Descriptor
from .primitive import Attributes, NoFastKernel, PrimitiveDesc, first_fast, forward_kind
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


def tensors_of(op: Convolution) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures, filters and outputs, or their gradients."""
    if isinstance(op, Conv2d):
        return op.x, op.w, op.y
    return (op.dx, op.w, op.dy) if isinstance(op, Conv2dBackwardData) else (op.x, op.dw, op.dy)


def operands(
    op: Convolution, layout: str, types: Types, *bias: bool, samples: int = 0
) -> tuple[Descriptor | None, ...]:
    """Source, weights, bias, if that is asked for, and destination, for a layout.

    ``types``: of source, weights and destination. ``bias``: whether there is one. ``samples``: of
    the batch; 0: all.
    """
    x, w, y = tensors_of(op)
    x_shape, y_shape = ((samples or t.shape[0], *t.shape[1:]) for t in (x, y))
    # Oihw16o kernels read pictures of 1 or 3 channels unblocked.
    source = "nchw" if layout.startswith("nChw") and x.shape[1] < 8 else layout
    filters = w.shape if op.groups == 1 else (op.groups, w.shape[0] // op.groups, *w.shape[1:])
    return (
        Descriptor.of(x_shape, source, types[0]),
        Descriptor.of(filters, "any", types[1]),
        *(Descriptor.of((w.shape[0],)) if there else None for there in bias),
        Descriptor.of(y_shape, layout, types[2]),
    )


def slide(op: Convolution) -> tuple[Any, ...]:
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
    op: Convolution,
    layouts: Iterable[str],
    types: Types,
    prop: int = FORWARD_TRAINING,
    bias: bool = False,
    post: Attributes | None = None,
    samples: int = 0,
) -> PrimitiveDesc:
    every = [operands(op, layout, types, bias, samples=samples) for layout in layouts]
    candidates = [(prop, CONVOLUTION_DIRECT, *each, *slide(op), post) for each in every]
    return first_fast("convolution_forward", candidates, _details(op))


def _layouts(choices: Mapping[str, str], name: str, channels: int) -> tuple[str, ...]:
    """The chosen layout first, then what any geometry has."""
    chosen = choices.get(name) or choices.get(name.partition("/")[0]) or default_layout(channels)
    return tuple(dict.fromkeys((chosen, *candidate_layouts(), "nchw")))


def _forward_layouts(op: Convolution, choices: Mapping[str, str]) -> tuple[str, ...]:
    return _layouts(choices, layer_of(op), tensors_of(op)[0].shape[1])


def wanted_layout(op: Conv2d, choices: Mapping[str, str]) -> str:
    """The name of the layout in which a convolution would have its source."""
    return _forward_layouts(op, choices)[0]


@binds(Conv2d, dtypes=BOTH)
def conv2d(b: Binder, op: Conv2d) -> None:
    layouts, written = _forward_layouts(op, b.choices), b.written_type(op.y)
    kind, post = forward_kind(b.graph), post_ops(op, written)
    types, bias = (b.dtype, b.dtype, written), op.bias is not None

    def describe(samples: int) -> PrimitiveDesc:
        return _forward_desc(op, layouts, types, kind, bias, post, samples)

    further = {"bias": None if op.bias is None else b.home(op.bias)}
    inputs = {"src": op.x, "weights": op.w}
    arguments = b.tensors(op, describe(0), inputs, {"dst": op.y}, _details(op), further)
    b.steps[-1] = replace(b.steps[-1], of_samples=describe)
    activate_behind(b, op, arguments["dst"])


@binds(Conv2dBackwardData, dtypes=BOTH)
def conv2d_backward_data(b: Binder, op: Conv2dBackwardData) -> None:
    layouts = _layouts(b.choices, f"{layer_of(op)}/data", op.dx.shape[1])
    forward = _forward_layouts(op, b.choices)
    hint = _forward_desc(op, forward, (b.dtype,) * 3)
    types = (b.written_type(op.dx), b.dtype, b.dtype)
    every = [operands(op, layout, types) for layout in layouts]
    candidates = [(CONVOLUTION_DIRECT, *each, *slide(op), hint, None) for each in every]
    desc = first_fast("convolution_backward_data", candidates, _details(op))
    b.tensors(op, desc, {"diff_dst": op.dy, "weights": op.w}, {"diff_src": op.dx}, _details(op))


def filter_gradient_desc(
    op: Conv2dBackwardFilter, choices: Mapping[str, str], dtype: str
) -> PrimitiveDesc:
    """The filter gradient's primitive: its layout of the weights is the parameters' layout.

    The gradient is float32, whatever the type of x and dy. Raises NoFastKernel.
    """
    forward = _forward_layouts(op, choices)
    for layout in _layouts(choices, f"{layer_of(op)}/filter", op.x.shape[1]):

        def describe(
            op: Conv2dBackwardFilter, attributes: Attributes | None = None, layout: str = layout
        ) -> PrimitiveDesc:
            hint = _forward_desc(op, forward, (dtype,) * 3)
            ends = operands(op, layout, (dtype, "float32", dtype), op.bias_grad is not None)
            arguments = (CONVOLUTION_DIRECT, *ends, *slide(op), hint, attributes)
            return first_fast("convolution_backward_weights", [arguments], _details(op))

        try:
            desc = describe(op)
        except NoFastKernel:
            continue
        if is_right(op, desc, describe):
            return desc
        if dtype != "float32":
            # Its fast kernels in float32 are many times faster than what bfloat16 has left.
            break
    raise NoFastKernel


@binds(Conv2dBackwardFilter, dtypes=BOTH)
def conv2d_backward_filter(b: Binder, op: Conv2dBackwardFilter) -> None:
    desc = filter_gradient_desc(op, b.choices, b.dtype)
    details = _details(op)
    if b.dtype != b.activations:
        details["reason"] = "oneDNN has no correct bfloat16 kernel for it"
    further = {"diff_bias": None if op.bias_grad is None else b.output(op.bias_grad)}
    inputs = {"src": op.x, "diff_dst": op.dy}
    b.tensors(op, desc, inputs, {"diff_weights": op.dw}, details, further)
