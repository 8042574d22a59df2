"""Pooling, activation and softmax by cuDNN where it has them as we mean them; reshape."""

from __future__ import annotations

from ctypes import c_int, c_void_p
from functools import partial

from ...graph import Op, Shape, Tensor
from ...ops import (
    ACTIVATIONS,
    Activation,
    ActivationBackward,
    Pool2d,
    Pool2dBackward,
    Reshape,
    Softmax,
    SoftmaxBackward,
)
from .bind import Binder, binds
from .conv_graph import strides
from .cudnn_library import ACTIVATION, MODE_CHANNEL, SOFTMAX_ACCURATE
from .kernels import f32, i32, i64, linear
from .runtime import cupy


def _symmetric(op: Pool2d | Pool2dBackward) -> bool:
    top, bottom, left, right = op.window.padding
    return top == bottom and left == right


def _pool_numbers(
    b: Binder, op: Pool2d | Pool2dBackward, x: Shape, y: Shape, layout: str
) -> object:
    """struct Pool of kernels.cu on the device."""
    top, _, left, _ = op.window.padding
    numbers = [x[1], x[2], x[3], y[2], y[3], *op.window.kernel, *op.window.stride, top, left]
    numbers += [int(layout == "nhwc"), int(op.kind == "avg")]
    return b.keep(cupy().asarray(numbers, "int32"))


@binds(Pool2d)
def pool2d(b: Binder, op: Pool2d) -> None:
    """cudnnPoolingForward; an own kernel where the padding differs between two sides."""
    x = b.home(op.x)
    y = b.output(op.y, x.layout)
    if not _symmetric(op):
        pool = _pool_numbers(b, op, op.x.shape, op.y.shape, x.layout)
        arguments = (x.array, y.array, i64(op.y.size), pool)
        launch = linear("pool_forward", op.y.size, arguments)
        return b.kernel(op, "pool_forward", launch, {"window": op.window})
    cudnn = b.libraries.cudnn
    top, _, left, _ = op.window.padding
    pooling = b.keep(cudnn.pooling(op.kind, op.window.kernel, (top, left), op.window.stride))
    source = b.keep(cudnn.tensor(op.x.shape, strides(op.x.shape, x.layout)))
    target = b.keep(cudnn.tensor(op.y.shape, strides(op.y.shape, x.layout)))
    launch = partial(
        cudnn.call,
        "cudnnPoolingForward",
        *(c_void_p(cudnn.handle), c_void_p(pooling.handle), cudnn.one, c_void_p(source.handle)),
        *(c_void_p(x.pointer), cudnn.zero, c_void_p(target.handle), c_void_p(y.pointer)),
        window=op.window,
        x=op.x.shape,
    )
    return b.add(
        op, "cuDNN", "cudnnPoolingForward", launch, {"window": op.window, "layout": x.layout}
    )


@binds(Pool2dBackward)
def pool2d_backward(b: Binder, op: Pool2dBackward) -> None:
    """An own kernel: cuDNN's maximum may break a tie otherwise, and is slow at scale."""
    layout = b.home(op.dy).layout
    if op.kind == "max":
        assert op.x is not None
        assert op.y is not None
        layout = b.home(op.x).layout
    dy = b.want(op.dy, layout)
    dx = b.output(op.dx, layout)
    x = b.home(op.x).array if op.x is not None else dy.array
    pool = _pool_numbers(b, op, op.dx.shape, op.dy.shape, layout)
    shown = {"window": op.window, "layout": layout}
    if op.window.kernel == op.window.stride and not any(op.window.padding):
        name = "pool_backward_disjoint"
        launch = linear(name, op.dy.size, (x, dy.array, dx.array, i64(op.dy.size), pool))
        return b.kernel(op, name, launch, shown)
    y = b.want(op.y, layout).array if op.y is not None else dy.array
    arguments = (x, y, dy.array, dx.array, i64(op.dx.size), pool)
    return b.kernel(op, "pool_backward", linear("pool_backward", op.dx.size, arguments), shown)


def _flat_tensor(b: Binder, tensor: Tensor) -> c_void_p:
    """A descriptor of all elements in a row: enough for elementwise functions."""
    shape = (1, 1, 1, tensor.size)
    owned = b.keep(b.libraries.cudnn.tensor(shape, (tensor.size, tensor.size, tensor.size, 1)))
    return c_void_p(owned.handle)


@binds(Activation)
def activation(b: Binder, op: Activation) -> None:
    x = b.home(op.x)
    y = b.output(op.y, x.layout)
    if op.kind not in ACTIVATION:
        kind = i32(ACTIVATIONS.index(op.kind))
        arguments = (x.array, y.array, i64(op.x.size), kind, f32(op.alpha))
        return b.kernel(op, "activation", linear("activation", op.x.size, arguments))
    cudnn = b.libraries.cudnn
    chosen = b.keep(cudnn.activation(op.kind, op.alpha))
    flat = _flat_tensor(b, op.x)
    launch = partial(
        cudnn.call,
        "cudnnActivationForward",
        *(c_void_p(cudnn.handle), c_void_p(chosen.handle), cudnn.one, flat, c_void_p(x.pointer)),
        *(cudnn.zero, flat, c_void_p(y.pointer)),
        kind=op.kind,
        size=op.x.size,
    )
    return b.add(op, "cuDNN", "cudnnActivationForward", launch, {"kind": op.kind})


@binds(ActivationBackward)
def activation_backward(b: Binder, op: ActivationBackward) -> None:
    """An own kernel for every kind: cuDNN's wants forward's input and output both."""
    value = b.home(op.value)
    dy = b.want(op.dy, value.layout)
    dx = b.output(op.dx, value.layout)
    kind = i32(ACTIVATIONS.index(op.kind))
    arguments = (value.array, dy.array, dx.array, i64(op.dx.size), kind, f32(op.alpha))
    launch = linear("activation_backward", op.dx.size, arguments)
    b.kernel(op, "activation_backward", launch, {"kind": op.kind})


@binds(Reshape)
def reshape(b: Binder, op: Reshape) -> None:
    """Row-major in, the same bytes out: at most one transposition."""
    b.alias(op.y, b.want(op.x, "nchw"))


def _softmax(b: Binder, op: Op, function: str, tensor: Tensor, pointers: list[int]) -> None:
    cudnn = b.libraries.cudnn
    shape = tensor.shape if len(tensor.shape) == 4 else (*tensor.shape, 1, 1)
    owned = b.keep(cudnn.tensor(shape, strides(shape, "nchw")))
    descriptor = c_void_p(owned.handle)
    *sources, target = pointers
    operands = [part for p in sources for part in (descriptor, c_void_p(p))]
    launch = partial(
        cudnn.call,
        function,
        *(c_void_p(cudnn.handle), c_int(SOFTMAX_ACCURATE), c_int(MODE_CHANNEL), cudnn.one),
        *(*operands, cudnn.zero, descriptor, c_void_p(target)),
        shape=shape,
    )
    b.add(op, "cuDNN", function, launch, {"axis": 1})


@binds(Softmax)
def softmax(b: Binder, op: Softmax) -> None:
    x = b.want(op.x, "nchw")
    _softmax(b, op, "cudnnSoftmaxForward", op.x, [x.pointer, b.output(op.y).pointer])


@binds(SoftmaxBackward)
def softmax_backward(b: Binder, op: SoftmaxBackward) -> None:
    y, dy = b.want(op.y, "nchw"), b.want(op.dy, "nchw")
    pointers = [y.pointer, dy.pointer, b.output(op.dx).pointer]
    _softmax(b, op, "cudnnSoftmaxBackward", op.y, pointers)
