"""The calls of a lecture's slides, one for one: another binding of the same graph.

``run.calls: lecture`` has what is bound here call what the slides call: a dense layer cublasSgemm
twice, its bias a product with ones; activations and pooling cuDNN's functions both ways; softmax
and loss what stands under them; the update cublasSaxpy for each parameter. Pictures lie as NCHW and
rows without padding; all is fp32, on one stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import byref, c_float
from dataclasses import replace
from functools import partial
from typing import Any

from ...common.errors import ConfigError
from ...graph import ops
from ...graph.graph import Graph, Op, Tensor
from .binding.bind import KERNELS, LECTURE, Binder, binds
from .binding.buffer import Buffer
from .libraries.cudnn_library import MODE_CHANNEL, SOFTMAX_ACCURATE
from .libraries.kernels import THREADS, i64
from .libraries.runtime import address_of

CHOICES = {"layout": "plain", "streams": "1"}
# What the slides have, or what moves, counts and measures beside it.
TAKEN = (
    *(ops.Advance, ops.BiasAdd, ops.BiasGrad, ops.Conv2d, ops.Conv2dBackwardData),
    *(ops.Conv2dBackwardFilter, ops.GatherBatch, ops.MatMul, ops.Metrics, ops.Reshape, ops.Softmax),
)
Three = tuple[int, int, int]


def check(graphs: Iterable[Graph]) -> None:
    """Raise ConfigError for an operation of a training step that the slides have no call for."""
    for graph in graphs:
        for op in graph.ops if graph.training else ():
            if not _has_call(op):
                raise ConfigError(
                    f"run.calls: 'lecture' has no call for {op.label()}; it has dense, conv2d, "
                    "pools padded alike on both sides, relu, sigmoid, tanh, a last softmax with "
                    "plain cross_entropy of classes, and sgd of one rate without nesterov; change "
                    "that, or set run.calls to best"
                )


def _has_call(op: Op) -> bool:
    match op:
        case ops.Activation() | ops.ActivationBackward():
            return op.kind in ("relu", "sigmoid", "tanh")
        case ops.Pool2d() | ops.Pool2dBackward():
            return not op.window.is_lopsided
        case ops.RowLoss() | ops.RowLossBackward():
            return op.formula == ops.CrossEntropy() and op.target.dtype == "int32"
        case ops.SoftmaxBackward():
            return op.log
        case ops.SgdUpdate():
            return not op.nesterov and {op.factor(i) for i in range(len(op.parameters))} == {1.0}
    return type(op) in TAKEN


def _cublas(b: Binder, op: Op, function: str, *given: Any, **shown: object) -> None:
    """Append a call of cuBLAS; a float is a scalar, which lies on the host."""
    cublas = b.stream.cublas
    arguments = [byref(c_float(each)) if isinstance(each, float) else each for each in given]
    launch = partial(cublas.call, f"{function}_v2", cublas.handle, *arguments, **shown)
    b.add(op, "cuBLAS", function, launch, shown)


def _sgemm(b: Binder, op: Op, turned: str, mnk: Three, ends: Three, beta: float = 0.0) -> None:
    """C = op(A) op(B) + beta C, column-major as on the slides; ends: the addresses of A, B, C."""
    (m, n, k), (first, second, result) = mnk, ends
    lda, ldb = k if turned[0] == "T" else m, n if turned[1] == "T" else k
    given = (*(each == "T" for each in turned), m, n, k, 1.0, first, lda, second, ldb)
    shown = {"transpose": turned, "m": m, "n": n, "k": k, "alpha": 1.0, "beta": beta}
    _cublas(b, op, "cublasSgemm", *given, beta, result, m, **shown, ld=f"{lda},{ldb},{m}")


def _scaled(b: Binder, op: Op, function: str, alpha: float, *vectors: Buffer) -> None:
    """cublasSscal: x *= alpha; cublasSaxpy: y += alpha x."""
    n, ends = vectors[0].layout.size, [part for each in vectors for part in (each.pointer, 1)]
    _cublas(b, op, function, n, alpha, *ends, n=n, alpha=alpha)


def _cudnn(b: Binder, op: Op, function: str, *given: Any, **shown: object) -> None:
    shown = {**shown, "alpha": 1.0, "beta": float(function == "cudnnAddTensor")}
    b.cudnn(op, function, given, shown, **shown)


def _ones(b: Binder, count: int) -> int:
    return address_of(b.keep(b.cuda.ones(count, "float32")))


@binds(ops.MatMul, LECTURE)
def matmul(b: Binder, op: ops.MatMul) -> None:
    """A row-major C = A B is C^T = B^T A^T column-major: the operands change places."""
    m, n, k = op.mnk
    turned = "".join("NT"[each] for each in (op.transpose_b, op.transpose_a))
    ends = (b.floats(op.b).pointer, b.floats(op.a).pointer, b.output(op.c).pointer)
    _sgemm(b, op, turned, (n, m, k), ends)


@binds(ops.BiasAdd, LECTURE)
def bias_add(b: Binder, op: ops.BiasAdd) -> None:
    """y += b 1^T in place; over pictures by cuDNN, for there a channel's numbers lie together."""
    y, bias, (rows, units) = b.floats(op.x), b.home(op.b), op.x.shape[:2]
    b.alias(op.y, y, y.layout)
    if len(op.y.shape) == 2:
        ends = (bias.pointer, _ones(b, rows), y.pointer)
        return _sgemm(b, op, "NN", (units, rows, 1), ends, beta=1.0)
    one, shape = b.stream.cudnn.one, b.stream.cudnn.plain
    ends_of_sum = (one, shape((1, units, 1, 1)), bias, one, shape(op.y.shape), y)
    return _cudnn(b, op, "cudnnAddTensor", *ends_of_sum, channels=units)


@binds(ops.BiasGrad, LECTURE)
def bias_grad(b: Binder, op: ops.BiasGrad) -> None:
    """db = dy 1."""
    dy, db, (rows, units) = b.floats(op.dy), b.output(op.db), op.dy.shape[:2]
    if len(op.dy.shape) == 2:
        given = (0, units, rows, 1.0, dy.pointer, units, _ones(b, rows), 1, 0.0, db.pointer, 1)
        shown = {"transpose": "N", "m": units, "n": rows, "alpha": 1.0, "beta": 0.0}
        return _cublas(b, op, "cublasSgemv", *given, **shown)
    cudnn, shape = b.stream.cudnn, b.stream.cudnn.plain
    ends = (cudnn.one, shape(op.dy.shape), dy, cudnn.zero, shape((1, units, 1, 1)), db)
    return _cudnn(b, op, "cudnnConvolutionBackwardBias", *ends, channels=units)


@binds(ops.ActivationBackward, LECTURE)
def activation_backward(b: Binder, op: ops.ActivationBackward) -> None:
    """cuDNN asks for forward's output and input both."""
    forward, cudnn, shape = b.graph.producer(op.value), b.stream.cudnn, b.stream.cudnn.plain
    assert isinstance(forward, ops.Activation)
    inputs = [p for t in (forward.y, op.dy, forward.x) for p in (shape(t.shape), b.floats(t))]
    given = (cudnn.activation(op.kind, op.alpha), cudnn.one, *inputs)
    ends = (cudnn.zero, shape(op.dx.shape), b.output(op.dx))
    _cudnn(b, op, "cudnnActivationBackward", *given, *ends, kind=op.kind)


@binds(ops.Pool2dBackward, LECTURE)
def pool2d_backward(b: Binder, op: ops.Pool2dBackward) -> None:
    """Of equal maxima cuDNN may take another than the first. An average reads neither x nor y."""
    cudnn, (top, _, left, _) = b.stream.cudnn, op.window.padding
    how = cudnn.pooling(op.kind, op.window.kernel, (top, left), op.window.stride)
    dy, dx = b.floats(op.dy), b.output(op.dx)
    small, large = cudnn.plain(op.dy.shape), cudnn.plain(op.dx.shape)
    y, x = b.floats(op.y) if op.y else dy, b.floats(op.x) if op.x else dx
    given = (how, cudnn.one, small, y, small, dy, large, x, cudnn.zero, large, dx)
    _cudnn(b, op, "cudnnPoolingBackward", *given, window=op.window, kind=op.kind)


def _beside(log_p: Tensor, what: str) -> Tensor:
    """What the slides have in the place of the logarithms of probabilities."""
    return replace(log_p, name=f"{log_p.name}.{what}")


@binds(ops.Softmax, LECTURE)
def softmax(b: Binder, op: ops.Softmax) -> None:
    """The probabilities themselves: where a loss follows, the graph asks for their logarithm."""
    if op.log and not b.graph.training:
        return KERNELS[ops.Softmax](b, op)
    cudnn, shape = b.stream.cudnn, b.stream.cudnn.plain(op.x.shape)
    given = (SOFTMAX_ACCURATE, MODE_CHANNEL, cudnn.one, shape, b.floats(op.x), cudnn.zero, shape)
    y = b.output(_beside(op.y, "predict") if op.log else op.y)
    return _cudnn(b, op, "cudnnSoftmaxForward", *given, y, algorithm="accurate")


@binds(ops.RowLoss, LECTURE)
def loss(b: Binder, op: ops.RowLoss) -> None:
    """The targets as rows of 0 and 1; the slides' kernel in one block, see lecture.cu.

    An evaluation, whose last batch has samples that do not count, keeps its own.
    """
    if not b.graph.training:
        return KERNELS[ops.RowLoss](b, op)
    (n, classes), rows = op.x.shape, b.output(_beside(op.x, "target"))
    size, predict = op.x.size, b.home(_beside(op.x, "predict"))
    b.kernel(op, ("lecture.cu", "one_hot"), size, (op.target, rows, i64(size), classes))
    given = (predict, rows, b.output(op.loss), n, classes, op.reduction == "mean")
    return b.kernel(op, ("lecture.cu", "softmax_loss"), (1,), given, shared=THREADS * 8)


# softmax_backward goes from the targets to the scores.
LECTURE[ops.RowLossBackward] = lambda b, op: None


@binds(ops.SoftmaxBackward, LECTURE)
def softmax_backward(b: Binder, op: ops.SoftmaxBackward) -> None:
    """(predict - target) / N."""
    dx, runtime, slope = b.output(op.dx), b.cuda.runtime, b.graph.producer(op.dy)
    assert isinstance(slope, ops.RowLossBackward)
    source, size = b.home(_beside(op.y, "predict")), op.dx.nbytes
    ends = (dx.pointer, source.pointer, size, runtime.memcpyDeviceToDevice, b.stream.cuda.ptr)
    b.add(op, "CUDA", "cudaMemcpyAsync", partial(runtime.memcpyAsync, *ends), {"bytes": size})
    _scaled(b, op, "cublasSaxpy", -1.0, b.home(_beside(op.y, "target")), dx)
    if slope.reduction == "mean":
        _scaled(b, op, "cublasSscal", 1.0 / op.dx.shape[0], dx)


@binds(ops.SgdUpdate, LECTURE)
def update(b: Binder, op: ops.SgdUpdate) -> None:
    """p -= rate g by a call for each parameter; a captured step reads the rate on the device."""
    factor = b.scratch(1, "float32")
    b.kernel(op, ("update.cu", "sgd_factor"), (1,), (b.data(op.rates), op.step, factor), block=(1,))
    for i, parameter in enumerate(op.parameters):
        p, step = b.home(parameter), b.home(op.gradients[i])
        if op.momentum:
            velocity = b.home(op.buffers[i])
            _scaled(b, op, "cublasSscal", op.momentum, velocity)
            _scaled(b, op, "cublasSaxpy", 1.0, step, velocity)
            step = velocity
        if op.weight_decay[i]:
            _scaled(b, op, "cublasSaxpy", op.weight_decay[i], p, step)
        n, ends = p.layout.size, (address_of(factor), step.pointer, p.pointer)
        launch = partial(b.stream.cublas.by_factor, "cublasSaxpy", n, *ends)
        b.add(op, "cuBLAS", "cublasSaxpy", launch, {"n": n, "alpha": "-rate"})
