"""Dense and convolution: inner products, convolutions, biases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from ...graph import Graph, Op, Shape, Tensor
from ...ops import Add, Conv2d, Conv2dBackwardData, Conv2dBackwardFilter, MatMul
from .bind import Binder, attempt, binds
from .constants import (
    BIAS,
    CONVOLUTION_DIRECT,
    DIFF_BIAS,
    DIFF_DST,
    DIFF_SRC,
    DIFF_WEIGHTS,
    DST,
    ELTWISE,
    ELTWISE_ALPHA,
    FORWARD_INFERENCE,
    FORWARD_TRAINING,
    SCALED_TANH,
    SRC,
    WEIGHTS,
)
from .fallback import reference
from .library import Dims, library
from .memory import Descriptor
from .primitive import Attributes, PrimitiveDesc

Convolution = Conv2d | Conv2dBackwardData | Conv2dBackwardFilter
Types = tuple[str, str, str]


def eltwise(kind: str, alpha: float) -> tuple[int, float]:
    """oneDNN's algorithm and alpha of an activation."""
    return ELTWISE[kind], ELTWISE_ALPHA.get(kind, alpha)


def post_ops(op: MatMul | Conv2d | Add) -> Attributes | None:
    if op.activation is None:
        return None
    if op.activation == "scaled_tanh":
        return Attributes(eltwise=SCALED_TANH)
    return Attributes(eltwise=((*eltwise(op.activation, op.activation_alpha), 0.0),))


def _forward_kind(graph: Graph) -> int:
    trains = any(o.phase in ("backward", "update") for op in graph.ops for o in op.origin)
    return FORWARD_TRAINING if trains else FORWARD_INFERENCE


# ---------------------------------------------------------------- convolution


def layer_of(op: Op) -> str:
    """The layer whose choice an operation follows."""
    return op.origin[0].layer if op.origin else ""


def candidate_layouts() -> tuple[str, ...]:
    """The layouts worth trying for a convolution on this machine."""
    return ("nChw16c" if "avx512" in library().isa() else "nChw8c", "nhwc")


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


@binds(Conv2d, narrow=True)
def conv2d(b: Binder, op: Conv2d) -> None:
    desc = _forward_desc(
        op.x,
        op.w,
        op.y,
        op,
        _forward_layouts(op, b.choices, op.x),
        (b.dtype, b.dtype, b.written_type(op.y)),
        _forward_kind(b.graph),
        op.bias is not None,
        post_ops(op),
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
    return b.primitive(op, desc, arguments, _details(op))


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
    layouts = _layouts(choices, f"{layer_of(op)}/filter", op.x.shape[1])
    forward = _forward_layouts(op, choices, op.x)
    hint = _forward_desc(op.x, op.dw, op.dy, op, forward, (dtype,) * 3)
    if hint is None:
        return None

    def candidate(layout: str) -> Callable[[], tuple[Any, ...]]:
        def arguments() -> tuple[Any, ...]:
            types = (dtype, "float32", dtype)
            d = ConvDescriptors(op.x, op.dw, op.dy, op.groups, layout, types)
            bias = d.bias if op.bias_grad is not None else None
            return (CONVOLUTION_DIRECT, d.src, d.weights, bias, d.dst, *_slide(op), hint, None)

        return arguments

    kind = "convolution_backward_weights"
    return attempt(kind, [candidate(layout) for layout in layouts], _details(op))


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
    return b.primitive(op, desc, arguments, _details(op))


# ---------------------------------------------------------------- dense


def _rows(*shape: int, dtype: str = "float32") -> Descriptor:
    return Descriptor.of(shape, "plain", dtype)


def _inner_forward(
    rows: int,
    units: int,
    inputs: int,
    prop: int,
    bias: bool,
    post: Attributes | None,
    dtype: str,
    written: str,
) -> PrimitiveDesc | None:
    """``dtype``: of source and weights; ``written``: of the destination."""
    source, target = _rows(rows, inputs, dtype=dtype), _rows(rows, units, dtype=written)
    weights = Descriptor.of((units, inputs), "any", dtype)
    arguments = (prop, source, weights, _rows(units) if bias else None, target, post)
    shown = {"M": rows, "N": units, "K": inputs}
    return attempt("inner_product_forward", [lambda: arguments], shown)


def weight_gradient_desc(op: MatMul, dtype: str) -> PrimitiveDesc | None:
    """The weight gradient's primitive: its layout of the weights is the parameters' layout.

    The gradient is float32, whatever the type of the factors.
    """
    rows, units = op.a.shape
    inputs = op.b.shape[1]
    hint = _inner_forward(rows, units, inputs, FORWARD_TRAINING, True, None, dtype, dtype)
    if hint is None:
        return None
    weights = Descriptor.of((units, inputs), "any")
    bias = _rows(units) if op.bias_grad is not None else None
    x, dy = _rows(rows, inputs, dtype=dtype), _rows(rows, units, dtype=dtype)
    arguments = (x, weights, bias, dy, hint, None)
    return attempt("inner_product_backward_weights", [lambda: arguments], _mnk(op))


def _mnk(op: MatMul) -> dict[str, object]:
    m, n, k = op.mnk
    shown: dict[str, object] = {"M": m, "N": n, "K": k}
    if op.activation is not None:
        shown["post_op"] = op.activation
    return shown


@binds(MatMul, narrow=True)
def matmul(b: Binder, op: MatMul) -> None:
    if op.transpose_a and not op.transpose_b and op.bias is None and op.activation is None:
        return _weight_gradient(b, op)
    if op.bias_grad is not None or op.transpose_a:
        return reference(b, op)
    m, n, k = op.mnk
    written = b.written_type(op.c)
    if op.transpose_b:
        prop, bias, post = _forward_kind(b.graph), op.bias is not None, post_ops(op)
        desc = _inner_forward(m, n, k, prop, bias, post, b.dtype, written)
        source, weights, target = SRC, WEIGHTS, DST
    elif op.bias is None and op.activation is None:
        hint = _inner_forward(m, k, n, FORWARD_TRAINING, False, None, b.dtype, b.dtype)
        dx, dy = _rows(m, n, dtype=written), _rows(m, k, dtype=b.dtype)
        arguments = (dx, b.layout((k, n), "any"), dy, hint, None)
        desc = attempt("inner_product_backward_data", [lambda: arguments], _mnk(op))
        source, weights, target = DIFF_DST, WEIGHTS, DIFF_SRC
    else:
        return reference(b, op)
    if desc is None:
        return reference(b, op)
    memories = {
        source: b.want(op.a, desc.descriptor(source)),
        weights: b.want(op.b, desc.descriptor(weights)),
        target: b.output(op.c, desc.descriptor(target)),
    }
    if op.bias is not None:
        memories[BIAS] = b.home(op.bias)
    return b.primitive(op, desc, memories, _mnk(op))


def _weight_gradient(b: Binder, op: MatMul) -> None:
    desc = weight_gradient_desc(op, b.dtype)
    if desc is None:
        return reference(b, op)
    memories = {
        SRC: b.want(op.b, desc.descriptor(SRC)),
        DIFF_DST: b.want(op.a, desc.descriptor(DIFF_DST)),
        DIFF_WEIGHTS: b.output(op.c, desc.descriptor(DIFF_WEIGHTS)),
    }
    if op.bias_grad is not None:
        memories[DIFF_BIAS] = b.output(op.bias_grad, Descriptor.of(op.bias_grad.shape))
    return b.primitive(op, desc, memories, _mnk(op))


# ---------------------------------------------------------------- planning


def planned_layouts(
    graph: Graph, choices: Mapping[str, str], narrow: bool = False
) -> dict[Tensor, Descriptor]:
    """The layout of every gradient in a section, as its operation will write it."""
    planned: dict[Tensor, Descriptor] = {}
    for op, dtype in product(graph.ops, ("bfloat16", "float32") if narrow else ("float32",)):
        desc: PrimitiveDesc | None = None
        if isinstance(op, Conv2dBackwardFilter):
            desc, gradient = filter_gradient_desc(op, choices, dtype), op.dw
        elif isinstance(op, MatMul) and op.c.role == "gradient":
            desc, gradient = weight_gradient_desc(op, dtype), op.c
        if desc is not None:
            planned.setdefault(gradient, desc.descriptor(DIFF_WEIGHTS))
    return planned
