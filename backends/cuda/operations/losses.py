"""Losses and metrics: kernels of ours that reduce on the device, in a fixed order."""

from __future__ import annotations

from typing import Any

from ....graph.graph import Op
from ....graph.ops import (
    Metrics,
    RowLoss,
    RowLossBackward,
    SoftmaxCrossEntropy,
    SoftmaxCrossEntropyBackward,
)
from ..binding.bind import Binder, binds
from ..libraries.kernels import THREADS, Grid, f32, i32, linear_grid

ROWS_A_BLOCK = 4
ROWS = "row_loss.cu"
# Every block of a gradient counts the samples anew.
MOST_BLOCKS = 64


def _kernel(
    b: Binder,
    op: Op,
    name: str,
    grid: Grid,
    arguments: tuple[Any, ...],
    threads: int = THREADS,
    shared: int = 0,
) -> None:
    b.kernel(op, ("losses.cu", name), grid, arguments, block=(threads,), shared=shared)


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
    _reduce(b, op, losses, target)


@binds(RowLoss)
def row_loss(b: Binder, op: RowLoss) -> None:
    n, classes = op.x.shape
    losses, target = b.scratch(n, "float32"), b.home(op.target).array
    arguments = (b.floats(op.x).array, target, losses, i32(n), i32(classes))
    b.kernel(op, (ROWS, "row_loss"), linear_grid(n), arguments, formula=op.formula)
    _reduce(b, op, losses, target)


def _reduce(b: Binder, op: RowLoss | SoftmaxCrossEntropy, losses: Any, target: Any) -> None:
    mean = i32(op.reduction == "mean")
    arguments = (losses, target, b.output(op.loss).array, i32(len(losses)), mean)
    _kernel(b, op, "reduce_loss", (1,), arguments, shared=THREADS * 8)


@binds(RowLossBackward)
def row_loss_backward(b: Binder, op: RowLossBackward) -> None:
    n, classes = op.x.shape
    arguments = (
        *(b.floats(op.x).array, b.home(op.target).array, b.output(op.dx).array),
        *(i32(n), i32(classes), i32(op.reduction == "mean")),
    )
    kernel, grid = (ROWS, "row_loss_backward"), (min(MOST_BLOCKS, -(-n * 32 // THREADS)),)
    b.kernel(op, kernel, grid, arguments, shared=THREADS * 8, formula=op.formula)


@binds(SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(b: Binder, op: SoftmaxCrossEntropyBackward) -> None:
    n, classes = op.dx.shape
    arguments = (
        *(b.floats(op.log_p).array, b.home(op.target).array, b.output(op.dx).array),
        *(i32(n), i32(classes), f32(op.label_smoothing), i32(op.reduction == "mean")),
    )
    grid = (max(1, min(MOST_BLOCKS, n * classes // 1024)),)
    _kernel(b, op, "loss_backward", grid, arguments, shared=THREADS * 8)


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
