"""Dense layers by cuBLAS, biases; pictures unrolled to rows of windows, by kernels of ours."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ....graph.graph import Op, Tensor
from ....graph.ops import BatchMatMul, BiasAdd, BiasGrad, Col2im, Conv2d, Im2col, MatMul
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..binding.choices import AtEnd, Plan, Tiled, plan_of
from ..binding.wide import activate_wide, inner, kind_of, row, wide
from ..fused.dense_candidates import Ends, takes
from ..fused.dense_update import DenseUpdate, may_update
from ..fused.tensor_dense import TensorDense
from ..libraries.cublas import Product
from ..libraries.cublas_lt import LtProduct
from ..libraries.kernels import THREADS, f32, i64
from ..libraries.layout import BFLOAT, FLOAT, Layout, ceil_div, plain
from ..libraries.runtime import address_of
from ..libraries.timing import captured_seconds

# Rows that one slice of a column sum takes, at least: fewer would not hide the second launch.
ROWS_A_SLICE = 64
MOST_SLICES = 64


@binds(MatMul)
def matmul(b: Binder, op: MatMul) -> None:
    """cublasSgemm, or cublasGemmEx where the operands are bfloat16.

    The bias and the activation that a rewrite added follow as one kernel of ours, in place. Or a
    kernel of ours on tensor cores with all of that, or the update's launch with the product in it,
    where the choices say so.
    """
    a_layout, b_layout, c_layout = _layouts(b, op)
    a, right = b.want(op.a, a_layout), b.want(op.b, b_layout)
    c = b.output(op.c, c_layout)
    key = b.choice(op, _role(op))
    # A search also tries to leave the product to cuBLAS, which is written as "".
    named = b.arithmetic.fusion and b.choices.get(f"{key}/gemm")
    chosen = b.chosen(f"{key}/gemm") if named else None
    if isinstance(chosen, AtEnd):
        DenseUpdate(b, op, (a, right, c), chosen.numbers).leave_to_update()
    elif isinstance(chosen, Tiled):
        TensorDense(b, op, (a, right, c), chosen.numbers).add()
    else:
        _by_cublas(b, op, (a, right, c), key, plan_of(f"{key}/gemm", chosen))
    if op.bias_grad is not None and not b.summed(op, op.bias_grad):
        column_sums(b, op, op.a, op.bias_grad)


def _by_cublas(b: Binder, op: MatMul, ends: Ends, key: str, chosen: Plan | None) -> None:
    """The product by an algorithm of cublasLt's, or cuBLAS's own choice, and what follows."""
    a, right, c = ends
    a_layout, b_layout, c_layout = (end.layout for end in ends)
    m, k = a_layout.stored[::-1] if op.transpose_a else a_layout.stored
    n = b_layout.stored[0] if op.transpose_b else b_layout.columns
    product = Product(
        *(m, n, k, a.pointer, a_layout.columns, right.pointer, b_layout.columns),
        *(c.pointer, c_layout.columns, op.transpose_a, op.transpose_b),
    )
    cublas = b.stream.cublas
    result = LtProduct(
        *(b.stream.cublas_lt, product, b.stream.cuda, cublas.workspace),
        tf32=not b.arithmetic.exact and a.dtype == FLOAT,
        operands=a.layout.dtype,
        result=c_layout.dtype,
    )
    b.products[key] = b.keep(result)
    offered = takes(op, ends, b.arithmetic)
    if offered:
        b.offer(f"{key}/gemm", Tiled, partial(TensorDense, b, op, ends))
    if may_update(b, op, ends):
        b.at_once[f"{key}/gemm"] = partial(DenseUpdate, b, op, ends)
    if chosen is not None:
        launch = result.launch(chosen.number)
        details = product.shown() | {"operands": a.layout.dtype}
        b.add(op, "cublasLt", "cublasLtMatmul", launch, details, f"algorithm {chosen.text}")
    elif a.dtype == BFLOAT:
        launch = partial(cublas.gemm_ex, product, BFLOAT, c_layout.dtype)
        b.add(op, "cuBLAS", "cublasGemmEx", launch, product.shown() | {"operands": BFLOAT})
    else:
        b.add(op, "cuBLAS", "cublasSgemm", partial(cublas.sgemm, product), product.shown())
    if op.bias is not None or op.activation is not None:
        finish(b, op, c, op.bias)
        if offered:
            tail = partial(captured_seconds, b.steps[-1].launch, b.stream.cuda)
            b.tails[f"{key}/gemm"] = tail


@binds(BatchMatMul)
def batch_matmul(b: Binder, op: BatchMatMul) -> None:
    """cublasSgemmStridedBatched on row-major matrices in float32."""
    a, right, c = b.floats(op.a), b.floats(op.b), b.output(op.c)
    count, turned = op.a.shape[0], (op.transpose_a, op.transpose_b)
    ends = (a.pointer, op.a.shape[2], right.pointer, op.b.shape[2], c.pointer, op.c.shape[2])
    product = Product(*op.mnk, *ends, *turned)
    launch = partial(b.stream.cublas.sgemm_batched, product, count, op.factor)
    b.add(op, "cuBLAS", "cublasSgemmStridedBatched", launch, product.shown() | {"batch": count})


def _role(op: MatMul) -> str:
    """Which of a dense layer's three products it is."""
    if op.transpose_a:
        return "filter"
    return "forward" if op.transpose_b else "data"


def _layouts(b: Binder, op: MatMul) -> tuple[Layout, Layout, Layout]:
    """How a, b and c must lie: parameters and gradients as planned, activations to match them."""
    weight = b.planned(op.b) if op.b.role == "parameter" else None
    gradient = b.planned(op.c) if op.c.role == "gradient" else None
    operand, n = b.arithmetic.dtype, op.a.shape[0]
    if weight is not None and not op.transpose_a:
        units, inputs = _sides(weight, n, operand)
        a, c = (inputs, units) if op.transpose_b else (units, inputs)
        return a, replace(weight, dtype=operand), replace(c, dtype=b.number(op.c))
    if gradient is not None and op.transpose_a and not op.transpose_b:
        return *_sides(gradient, n, operand), gradient
    return plain(op.a.shape), plain(op.b.shape), gradient or plain(op.c.shape)


def _sides(weight: Layout, n: int, dtype: str) -> tuple[Layout, Layout]:
    """How n rows of outputs and of inputs of a dense layer must lie to match its weights."""
    sides = zip(weight.shape, weight.stored, (None, weight.picture), strict=True)
    units, inputs = (
        Layout((n, size), (n, stored), picture=picture, dtype=dtype)
        for size, stored, picture in sides
    )
    return units, inputs


def finish(b: Binder, op: MatMul | Conv2d, y: Buffer, bias: Tensor | None) -> None:
    """y = f(y + bias) in place over the channels that count."""
    kind = kind_of(op.activation)
    if wide(y.layout):
        return activate_wide(b, op, (y, bias, y), kind, op.activation_alpha)
    size, where = y.layout.size, (*row(y.layout), inner(y.layout))
    arguments = (y, bias, i64(size), *where, kind, f32(op.activation_alpha))
    return b.kernel(op, ("elementwise.cu", "bias_activation", y.dtype), size, arguments)


@binds(BiasAdd)
def bias_add(b: Binder, op: BiasAdd) -> None:
    y = b.output(op.y, replace(b.home(op.x).layout, dtype=b.number(op.y)))
    size, where = y.layout.size, (*row(y.layout), inner(y.layout))
    arguments = (b.want(op.x, y.layout), op.b, y, i64(size), *where)
    b.kernel(op, ("elementwise.cu", "bias_add", y.dtype), size, arguments)


@binds(BiasGrad)
def bias_grad(b: Binder, op: BiasGrad) -> None:
    if not b.summed(op, op.db):
        column_sums(b, op, op.dy, op.db)


def column_sums(b: Binder, op: Op, dy: Tensor, db: Tensor) -> None:
    """db = sum of dy over rows of channels: cublasSgemv with ones; a kernel of ours in bfloat16,
    and where channels lie apart."""
    held = b.home(dy)
    layout, (channels, stored) = held.layout, row(held.layout)
    pixels, rows = inner(layout), layout.size // stored
    if pixels > 1:
        planes = (held, b.output(db), layout.shape[0], channels, pixels)
        kernel = ("elementwise.cu", "bias_grad_nchw", held.dtype)
        return b.kernel(op, kernel, (channels,), planes, shared=THREADS * 8)
    shown = {"rows": rows, "columns": channels}
    if layout.picture is None and held.dtype == FLOAT and not b.arithmetic.fusion:
        ones = b.keep(b.cuda.ones(rows, "float32"))
        ends = (held.pointer, address_of(ones), b.output(db).pointer)
        launch = partial(b.stream.cublas.column_sums, rows, channels, stored, *ends)
        return b.add(op, "cuBLAS", "cublasSgemv", launch, shown)
    slices = max(1, min(MOST_SLICES, rows // ROWS_A_SLICE))
    sums = b.scratch(slices * channels, "float32")
    kernel, grid = ("elementwise.cu", "column_sums", held.dtype), (slices, ceil_div(channels, 32))
    b.kernel(op, kernel, grid, (held, sums, rows, channels, stored), shown, block=(32, 8))
    return b.slices(op, sums, 0, slices, channels, db, channels)


def _columns(b: Binder, op: Im2col | Col2im, name: str, source: Buffer, target: Buffer) -> None:
    """struct Unrolled of im2col.cu."""
    _, channels, height, width = op.x.shape
    window = op.window
    top, _, left, _ = window.padding
    numbers = b.numbers(
        *(channels, height, width, *window.output(height, width), *window.kernel),
        *(*window.stride, *window.dilation, top, left),
    )
    size = target.layout.size
    arguments = (source, target, i64(size), numbers)
    b.kernel(op, ("im2col.cu", name), size, arguments, {"window": window})


@binds(Im2col)
def im2col(b: Binder, op: Im2col) -> None:
    _columns(b, op, "im2col", b.floats(op.x), b.output(op.columns))


@binds(Col2im)
def col2im(b: Binder, op: Col2im) -> None:
    _columns(b, op, "col2im", b.floats(op.columns), b.output(op.x))
