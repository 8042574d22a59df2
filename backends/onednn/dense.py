"""Dense layers: inner products, their gradients, and the sums of these."""

from __future__ import annotations

from ...graph.ops import MatMul
from .activations import activate_behind, post_ops
from .bind import BOTH, Binder, binds
from .constants import FORWARD_TRAINING
from .memory import Descriptor, Memory
from .primitive import (
    Attributes,
    NoFastKernel,
    PrimitiveDesc,
    first_fast,
    forward_kind,
    needed,
    sum_arguments,
)
from .sums import sum_into

SHORT_ROWS = 256


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
    return first_fast("inner_product_forward", [arguments], shown)


def weight_gradient_desc(op: MatMul, dtype: str) -> PrimitiveDesc | None:
    """The weight gradient's primitive: its layout of the weights is the parameters' layout.

    The gradient is float32, whatever the type of the factors.
    """
    rows, units = short_rows(op, dtype), op.a.shape[1]
    inputs = op.b.shape[1]
    hint = _inner_forward(rows, units, inputs, FORWARD_TRAINING, True, None, dtype, dtype)
    if hint is None:
        return None
    weights = Descriptor.of((units, inputs), "any")
    bias = _rows(units) if op.bias_grad is not None and dtype != "float32" else None
    x, dy = _rows(rows, inputs, dtype=dtype), _rows(rows, units, dtype=dtype)
    arguments = (x, weights, bias, dy, hint, None)
    return first_fast("inner_product_backward_weights", [arguments], _mnk(op))


def _mnk(op: MatMul) -> dict[str, object]:
    m, n, k = op.mnk
    shown: dict[str, object] = {"M": m, "N": n, "K": k}
    if op.activation is not None:
        shown["post_op"] = op.activation
    return shown


@binds(MatMul, dtypes=BOTH)
def matmul(b: Binder, op: MatMul) -> None:
    """Forward, data gradient or weight gradient of a dense layer, as an inner product."""
    if op.transpose_a and not op.transpose_b and op.bias is None and op.activation is None:
        return _weight_gradient(b, op)
    if op.bias_grad is not None or op.transpose_a:
        raise NoFastKernel
    m, n, k = op.mnk
    written = b.written_type(op.c)
    if op.transpose_b:
        prop, bias, post = forward_kind(b.graph), op.bias is not None, post_ops(op, written)
        desc = _inner_forward(m, n, k, prop, bias, post, b.dtype, written)
        source, target = "src", "dst"
    elif op.bias is None and op.activation is None:
        hint = _inner_forward(m, k, n, FORWARD_TRAINING, False, None, b.dtype, b.dtype)
        dx, dy = _rows(m, n, dtype=written), _rows(m, k, dtype=b.dtype)
        arguments = (dx, b.layout((k, n), "any"), dy, hint, None)
        desc = first_fast("inner_product_backward_data", [arguments], _mnk(op))
        source, target = "diff_dst", "diff_src"
    else:
        raise NoFastKernel
    further = {"bias": None if op.bias is None else b.home(op.bias)}
    inputs = {source: op.a, "weights": op.b}
    memories = b.tensors(op, needed(desc), inputs, {target: op.c}, _mnk(op), further)
    return activate_behind(b, op, memories[target])


def short_rows(op: MatMul, dtype: str) -> int:
    """The samples that a weight gradient in float32 adds up at a time: a part of the batch."""
    rows = op.a.shape[0]
    if dtype != "float32" or rows <= 2 * SHORT_ROWS:
        return rows
    parts = range(SHORT_ROWS, SHORT_ROWS // 4, -1)
    return next((part for part in parts if rows % part == 0), rows)


def _weight_gradient(b: Binder, op: MatMul) -> None:
    desc = needed(weight_gradient_desc(op, b.dtype))
    x, dy = b.want(op.b, b.layout(op.b.shape)), b.want(op.a, b.layout(op.a.shape))
    layout = desc.descriptor("diff_weights")
    result = b.output(op.c, layout)
    rows, each = op.a.shape[0], short_rows(op, b.dtype)
    parts = [result] if each == rows else [b.scratch(layout) for _ in range(rows // each)]
    for at, part in enumerate(parts):
        memories = {
            "src": _piece(x, desc.descriptor("src"), at),
            "diff_dst": _piece(dy, desc.descriptor("diff_dst"), at),
            "diff_weights": part,
        }
        if op.bias_grad is not None and b.dtype != "float32":
            memories["diff_bias"] = b.output(op.bias_grad)
        b.primitive(op, desc, memories, _mnk(op))
    if len(parts) > 1:
        total = PrimitiveDesc("sum", *sum_arguments(layout, len(parts)))
        sources = {f"multiple_src_{at}": part for at, part in enumerate(parts)}
        b.primitive(op, total, {**sources, "dst": result})
    if op.bias_grad is not None and b.dtype == "float32":
        sum_into(b, op, dy, b.output(op.bias_grad))


def _piece(memory: Memory, layout: Descriptor, at: int) -> Memory:
    """The at-th rows of a row-major memory."""
    return Memory(layout, memory.buffer[at * layout.nbytes : (at + 1) * layout.nbytes])
