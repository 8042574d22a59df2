"""Dense layers by cuBLAS, biases."""

from __future__ import annotations

from functools import partial

from ....graph.graph import Op, Tensor
from ....graph.ops import ACTIVATIONS, BiasAdd, BiasGrad, Conv2d, MatMul
from ..binding.bind import Binder, binds
from ..binding.store import Buffer
from ..binding.wide import activate_wide, inner, wide
from ..libraries.cublas import Product
from ..libraries.cublas_lt import LtProduct
from ..libraries.kernels import THREADS, f32, i32, i64, linear_grid
from ..libraries.layout import BFLOAT, FLOAT, Layout, plain

# Rows that one slice of a column sum takes, at least: fewer would not hide the second launch.
ROWS_A_SLICE = 64
MOST_SLICES = 64


@binds(MatMul)
def matmul(b: Binder, op: MatMul) -> None:
    """cublasSgemm, or cublasGemmEx where the operands are bfloat16.

    The bias and the activation that a rewrite added follow as one kernel of ours, in place.
    """
    a_layout, b_layout, c_layout = _layouts(b, op)
    a, right = b.want(op.a, a_layout), b.want(op.b, b_layout)
    c = b.output(op.c, c_layout)
    m, k = a_layout.stored[::-1] if op.transpose_a else a_layout.stored
    n = b_layout.stored[0] if op.transpose_b else b_layout.stored[1]
    product = Product(
        *(m, n, k, a.pointer, a_layout.stored[1], right.pointer, b_layout.stored[1]),
        *(c.pointer, c_layout.stored[1], op.transpose_a, op.transpose_b),
    )
    key = f"{b.graph.name}/{op.origin[0].layer if op.origin else ''}/{_role(op)}"
    result = LtProduct(
        b.stream.cublas_lt,
        product,
        b.stream.cuda,
        b.stream.cublas.workspace,
        tf32=not b.arithmetic.exact and a.dtype == FLOAT,
        operands=a.layout.dtype,
        result=c_layout.dtype,
        elements=c_layout.size,
    )
    b.products[key] = b.keep(result)
    chosen = b.choices.get(f"{key}/gemm", "") if b.arithmetic.fusion else ""
    cublas = b.stream.cublas
    if chosen:
        launch = result.launch(int(chosen))
        details = product.shown() | {"operands": a.layout.dtype}
        b.add(op, "cublasLt", "cublasLtMatmul", launch, details, f"algorithm {chosen}")
    elif a.dtype == BFLOAT:
        launch = partial(cublas.gemm_ex, product, BFLOAT, c_layout.dtype)
        b.add(op, "cuBLAS", "cublasGemmEx", launch, product.shown() | {"operands": BFLOAT})
    else:
        b.add(op, "cuBLAS", "cublasSgemm", partial(cublas.sgemm, product), product.shown())
    if op.bias is not None or op.activation is not None:
        finish(b, op, c, op.bias)
    if op.bias_grad is not None and op not in b.decisions.summed:
        column_sums(b, op, op.a, op.bias_grad)


def _role(op: MatMul) -> str:
    """Which of a dense layer's three products it is."""
    if op.transpose_a:
        return "filter"
    return "forward" if op.transpose_b else "data"


def _layouts(b: Binder, op: MatMul) -> tuple[Layout, Layout, Layout]:
    """How a, b and c must lie: parameters and gradients as planned, activations to match them."""
    weight = b.planned(op.b) if op.b.role == "parameter" else None
    gradient = b.planned(op.c) if op.c.role == "gradient" else None
    operand = b.arithmetic.dtype
    if weight is not None and not op.transpose_a:
        units = Layout(
            (op.a.shape[0], weight.shape[0]),
            (op.a.shape[0], weight.stored[0]),
            dtype=operand,
        )
        inputs = Layout(
            (op.a.shape[0], weight.shape[1]),
            (op.a.shape[0], weight.stored[1]),
            picture=weight.picture,
            dtype=operand,
        )
        a, c = (inputs, units) if op.transpose_b else (units, inputs)
        c = Layout(c.shape, c.stored, picture=c.picture, dtype=b.number(op.c))
        return a, Layout(weight.shape, weight.stored, picture=weight.picture, dtype=operand), c
    if gradient is not None and op.transpose_a and not op.transpose_b:
        samples = op.a.shape[0]
        a = Layout(op.a.shape, (samples, gradient.stored[0]), dtype=operand)
        right = Layout(
            op.b.shape, (samples, gradient.stored[1]), picture=gradient.picture, dtype=operand
        )
        return a, right, gradient
    c = gradient or plain(op.c.shape)
    return plain(op.a.shape), plain(op.b.shape), c


def finish(b: Binder, op: MatMul | Conv2d, y: Buffer, bias: Tensor | None) -> None:
    """y = f(y + bias) in place over the channels that count."""
    kind = -1 if op.activation is None else ACTIVATIONS.index(op.activation)
    channels, stored = y.layout.shape[1], y.layout.stored[1]
    held = 0 if bias is None else b.home(bias).array
    if wide(y.layout):
        return activate_wide(b, op, (y, held, y), kind, op.activation_alpha)
    numbers = (i32(channels), i32(stored), i32(inner(y.layout)), i32(kind))
    arguments = (y.array, held, i64(y.layout.size), *numbers, f32(op.activation_alpha))
    kernel = ("elementwise.cu", "bias_activation", y.dtype)
    return b.kernel(op, kernel, linear_grid(y.layout.size), arguments)


@binds(BiasAdd)
def bias_add(b: Binder, op: BiasAdd) -> None:
    x = b.home(op.x)
    y = b.output(op.y, _numbered(x.layout, b.number(op.y)))
    source = b.want(op.x, y.layout)
    channels, stored = y.layout.shape[1], y.layout.stored[1]
    numbers = (i64(y.layout.size), i32(channels), i32(stored), i32(inner(y.layout)))
    arguments = (source.array, b.home(op.b).array, y.array, *numbers)
    b.kernel(op, ("elementwise.cu", "bias_add", y.dtype), linear_grid(y.layout.size), arguments)


def _numbered(layout: Layout, dtype: str) -> Layout:
    return Layout(layout.shape, layout.stored, layout.nhwc, layout.picture, dtype)


@binds(BiasGrad)
def bias_grad(b: Binder, op: BiasGrad) -> None:
    if op not in b.decisions.summed:
        column_sums(b, op, op.dy, op.db)


def column_sums(b: Binder, op: Op, dy: Tensor, db: Tensor) -> None:
    """db = sum of dy over rows of channels: cublasSgemv with ones; a kernel of ours in bfloat16,
    and where channels lie apart."""
    held = b.home(dy)
    layout = held.layout
    channels, stored = layout.shape[1], layout.stored[1]
    if inner(layout) > 1:
        return _planes(b, op, held, db)
    rows = layout.size // stored
    if layout.picture is None and held.layout.dtype == "float32" and not b.arithmetic.fusion:
        ones = b.keep(b.cupy.ones(rows, "float32"))
        target = b.output(db, b.planned(db))
        here = b.stream.cublas
        launch = partial(
            here.column_sums,
            *(rows, channels, stored, held.pointer, int(ones.data.ptr)),
            target.pointer,
        )
        return b.add(op, "cuBLAS", "cublasSgemv", launch, {"rows": rows, "columns": channels})
    slices = max(1, min(MOST_SLICES, rows // ROWS_A_SLICE))
    sums = b.scratch(slices * channels, "float32")
    arguments = (held.array, sums, i32(rows), i32(channels), i32(stored))
    b.kernel(
        op,
        ("elementwise.cu", "column_sums", held.dtype),
        (slices, -(-channels // 32)),
        arguments,
        {"rows": rows, "columns": channels},
        block=(32, 8),
    )
    return b.slices(op, sums, 0, slices, channels, db, channels)


def _planes(b: Binder, op: Op, dy: Buffer, db: Tensor) -> None:
    n, channels, height, width = dy.layout.shape
    target = b.output(db, b.planned(db))
    arguments = (dy.array, target.array, i32(n), i32(channels), i32(height * width))
    kernel = ("elementwise.cu", "bias_grad_nchw", dy.dtype)
    b.kernel(op, kernel, (channels,), arguments, shared=THREADS * 8)
