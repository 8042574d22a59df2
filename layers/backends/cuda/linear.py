"""Dense layers by cuBLAS, convolutions by cuDNN's graphs, biases."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...graph import Shape, Tensor
from ...ops import (
    ACTIVATIONS,
    BiasAdd,
    BiasGrad,
    Conv2d,
    Conv2dBackwardData,
    Conv2dBackwardFilter,
    MatMul,
)
from .bind import Binder, binds, inner
from .conv_graph import ConvGraph
from .kernels import THREADS, f32, i32, i64, launcher, linear
from .runtime import cupy

Convolution = Conv2d | Conv2dBackwardData | Conv2dBackwardFilter


@binds(MatMul)
def matmul(b: Binder, op: MatMul) -> None:
    """cublasSgemm; the bias and the activation that a rewrite added follow as kernels of ours."""
    m, n, k = op.mnk
    cublas = b.libraries.cublas
    a, right, c = b.home(op.a), b.home(op.b), b.output(op.c)
    launch = partial(
        cublas.sgemm, op.transpose_a, op.transpose_b, m, n, k, a.pointer, right.pointer, c.pointer
    )
    details = {"m": m, "n": n, "k": k, "transpose": f"{op.transpose_a},{op.transpose_b}"}
    b.add(op, "cuBLAS", "cublasSgemm", launch, details)
    if op.bias is not None:
        kind = -1 if op.activation is None else ACTIVATIONS.index(op.activation)
        slope = f32(op.activation_alpha)
        numbers = (i64(op.c.size), i32(n), i32(kind), slope)
        arguments = (c.array, b.home(op.bias).array, *numbers)
        b.kernel(op, "bias_activation", linear("bias_activation", op.c.size, arguments))
    elif op.activation is not None:
        _activate(b, op, c.array, op.c.size)
    if op.bias_grad is not None:
        _column_sums(b, op, k, m, a.pointer, b.output(op.bias_grad).pointer)


def _activate(b: Binder, op: MatMul | Conv2d, array: Any, size: int) -> None:
    """Apply the activation that a rewrite added, in place."""
    assert op.activation is not None
    kind = i32(ACTIVATIONS.index(op.activation))
    arguments = (array, array, i64(size), kind, f32(op.activation_alpha))
    b.kernel(op, "activation", linear("activation", size, arguments))


def _column_sums(b: Binder, op: MatMul | BiasGrad, rows: int, columns: int, a: int, y: int) -> None:
    ones = b.keep(cupy().ones(rows, "float32"))
    launch = partial(b.libraries.cublas.column_sums, rows, columns, a, int(ones.data.ptr), y)
    b.add(op, "cuBLAS", "cublasSgemv", launch, {"rows": rows, "columns": columns})


@binds(BiasAdd)
def bias_add(b: Binder, op: BiasAdd) -> None:
    x = b.home(op.x)
    y = b.output(op.y, x.layout)
    channels = op.x.shape[1]
    run = inner(op.x, x.layout)
    arguments = (x.array, b.home(op.b).array, y.array, i64(op.x.size), i32(channels), i32(run))
    b.kernel(op, "bias_add", linear("bias_add", op.x.size, arguments))


@binds(BiasGrad)
def bias_grad(b: Binder, op: BiasGrad) -> None:
    """cublasSgemv with ones over rows of channels; an own kernel where channels lie apart."""
    dy, db = b.home(op.dy), b.output(op.db)
    channels = op.dy.shape[1]
    rows = op.dy.size // channels
    if inner(op.dy, dy.layout) == 1:
        return _column_sums(b, op, rows, channels, dy.pointer, db.pointer)
    n = op.dy.shape[0]
    arguments = (dy.array, db.array, i32(n), i32(channels), i32(rows // n))
    launch = launcher("bias_grad_nchw", channels, THREADS, arguments, THREADS * 4)
    return b.kernel(op, "bias_grad_nchw", launch)


def _graph(
    b: Binder, op: Convolution, kind: str, x: Shape, w: Shape, y: Shape, **extra: bool
) -> ConvGraph:
    graph = ConvGraph(
        b.libraries.cudnn,
        kind,
        x,
        w,
        y,
        op.window,
        b.layout,
        exact=b.libraries.exact,
        deterministic=b.libraries.deterministic,
        **extra,
    )
    chosen = b.choices.get(_key(b, op, kind))
    graph.choose(None if chosen is None else int(chosen))
    return graph


def _key(b: Binder, op: Convolution, kind: str) -> str:
    """The name of a convolution's plan among the choices: plans depend on the batch size."""
    layer = op.origin[0].layer if op.origin else ""
    return f"{b.graph.name}/{layer}/{kind}"


def _bound(
    b: Binder, op: Convolution, graph: ConvGraph, pointers: dict[str, int], output: Tensor
) -> None:
    b.convolutions[_key(b, op, str(graph.shown["kind"]))] = (graph, b.home(output))
    b.workspace_bytes = max(b.workspace_bytes, graph.workspace_bytes)
    b.late.append(partial(graph.bind, pointers))
    details = dict(graph.shown) | {"workspace": graph.workspace_bytes}
    b.add(op, "cuDNN", "cudnnBackendExecute", graph.run, details, graph.plan_name)


@binds(Conv2d)
def conv2d(b: Binder, op: Conv2d) -> None:
    relu = op.activation == "relu"
    graph = _graph(
        b, op, "forward", op.x.shape, op.w.shape, op.y.shape, bias=op.bias is not None, relu=relu
    )
    y = b.output(op.y, b.layout)
    pointers = {
        "x": b.want(op.x, b.layout).pointer,
        "w": b.want(op.w, b.layout).pointer,
        "y": y.pointer,
    }
    if op.bias is not None:
        pointers["bias"] = b.home(op.bias).pointer
    _bound(b, op, graph, pointers, op.y)
    if op.activation is not None and not relu:
        _activate(b, op, y.array, op.y.size)


@binds(Conv2dBackwardData)
def conv2d_backward_data(b: Binder, op: Conv2dBackwardData) -> None:
    graph = _graph(b, op, "data", op.dx.shape, op.w.shape, op.dy.shape)
    pointers = {
        "y": b.want(op.dy, b.layout).pointer,
        "w": b.want(op.w, b.layout).pointer,
        "x": b.output(op.dx, b.layout).pointer,
    }
    _bound(b, op, graph, pointers, op.dx)


@binds(Conv2dBackwardFilter)
def conv2d_backward_filter(b: Binder, op: Conv2dBackwardFilter) -> None:
    graph = _graph(b, op, "filter", op.x.shape, op.dw.shape, op.dy.shape)
    dy = b.want(op.dy, b.layout)
    pointers = {
        "x": b.want(op.x, b.layout).pointer,
        "y": dy.pointer,
        "w": b.output(op.dw, b.layout).pointer,
    }
    _bound(b, op, graph, pointers, op.dw)
    if op.bias_grad is not None:
        bias_grad(b, BiasGrad(dy=op.dy, db=op.bias_grad, origin=op.origin))
