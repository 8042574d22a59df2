"""Losses and metrics: kernels of ours that reduce on the device, in a fixed order."""

from __future__ import annotations

from typing import Any

from ....graph.graph import Op, Tensor
from ....graph.ops import (
    CrossEntropy,
    CrossEntropyBackward,
    MeanSquaredError,
    MeanSquaredErrorBackward,
    Metrics,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from ..binding.bind import Binder, binds
from ..libraries.kernels import THREADS, Grid, f32, i32, linear_grid

ROWS_A_BLOCK = 4
LOG_PROBABILITIES, SQUARED_ERROR = 0, 1
FROM_LOG_SOFTMAX, FROM_TARGET, FROM_OUTPUT = 0, 1, 2
Backward = CrossEntropyBackward | SoftmaxCrossEntropyBackward | MeanSquaredErrorBackward


def _kernel(
    b: Binder,
    op: Op,
    name: str,
    grid: Grid,
    arguments: tuple[Any, ...],
    threads: int = THREADS,
    shared: int = 0,
) -> None:
    b.kernel(op, ("losses.cu", name, False), grid, arguments, block=(threads,), shared=shared)


@binds(SoftmaxCrossEntropy)
def softmax_cross_entropy(b: Binder, op: SoftmaxCrossEntropy) -> None:
    n, classes = op.x.shape
    losses = b.scratch(n, "float32")
    target = b.home(op.target).array
    arguments = (b.floats(op.x).array, target, b.output(op.log_p).array, losses)
    numbers = (i32(n), i32(classes), f32(op.label_smoothing))
    _kernel(
        b,
        op,
        "log_softmax_loss",
        (-(-n // ROWS_A_BLOCK),),
        (*arguments, *numbers),
        threads=32 * ROWS_A_BLOCK,
    )
    _reduce(b, op, losses, target, op.loss)


def _rows(
    b: Binder, op: CrossEntropy | MeanSquaredError, x: Tensor, smoothing: float, kind: int
) -> None:
    n, classes = x.shape
    losses = b.scratch(n, "float32")
    target = b.home(op.target).array
    numbers = (i32(n), i32(classes), f32(smoothing), i32(kind))
    _kernel(b, op, "row_losses", linear_grid(n), (b.floats(x).array, target, losses, *numbers))
    _reduce(b, op, losses, target, op.loss)


def _reduce(
    b: Binder,
    op: CrossEntropy | MeanSquaredError | SoftmaxCrossEntropy,
    losses: Any,
    target: Any,
    loss: Tensor,
) -> None:
    mean = i32(op.reduction == "mean")
    arguments = (losses, target, b.output(loss).array, i32(len(losses)), mean)
    _kernel(b, op, "reduce_loss", (1,), arguments, shared=THREADS * 8)


@binds(CrossEntropy)
def cross_entropy(b: Binder, op: CrossEntropy) -> None:
    _rows(b, op, op.log_p, op.label_smoothing, LOG_PROBABILITIES)


@binds(MeanSquaredError)
def mean_squared_error(b: Binder, op: MeanSquaredError) -> None:
    _rows(b, op, op.x, 0.0, SQUARED_ERROR)


def _backward(
    b: Binder, op: Backward, x: Tensor | None, dx: Tensor, smoothing: float, kind: int
) -> None:
    n, classes = dx.shape
    target = b.home(op.target).array
    mean = i32(op.reduction == "mean")
    numbers = (i32(n), i32(classes), f32(smoothing), mean, i32(kind))
    source, slopes = None if x is None else b.floats(x).array, b.output(dx).array
    arguments = (slopes if source is None else source, target, slopes, *numbers)
    blocks = max(1, min(64, n * classes // 1024))
    _kernel(b, op, "loss_backward", (blocks,), arguments, shared=THREADS * 8)


@binds(SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(b: Binder, op: SoftmaxCrossEntropyBackward) -> None:
    _backward(b, op, op.log_p, op.dx, op.label_smoothing, FROM_LOG_SOFTMAX)


@binds(CrossEntropyBackward)
def cross_entropy_backward(b: Binder, op: CrossEntropyBackward) -> None:
    _backward(b, op, None, op.dlog_p, op.label_smoothing, FROM_TARGET)


@binds(MeanSquaredErrorBackward)
def mean_squared_error_backward(b: Binder, op: MeanSquaredErrorBackward) -> None:
    _backward(b, op, op.x, op.dx, 0.0, FROM_OUTPUT)


@binds(Metrics)
def metrics(b: Binder, op: Metrics) -> None:
    n, classes = op.scores.shape
    arguments = (
        b.floats(op.scores).array,
        b.home(op.target).array,
        b.home(op.loss).array,
        b.home(op.sums).array,
        *(i32(n), i32(classes), i32(op.reduction == "mean")),
    )
    _kernel(b, op, "metrics", (1,), arguments, shared=THREADS * 8)
