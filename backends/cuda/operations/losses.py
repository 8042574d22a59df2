"""Losses and metrics: kernels of ours that reduce on the device, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from ....graph import ops
from ....graph.graph import Op
from ..binding.bind import Binder, binds
from ..binding.launch_list import Varying
from ..libraries.kernels import THREADS, Defines, blocks_for, f32
from ..libraries.layout import ceil_div

ROWS_A_BLOCK = 4
ROWS = "row_loss.cu"
# Every block of a gradient counts the samples anew.
MOST_BLOCKS = 64
# Of a block.
MOST_THREADS = 1024
_ANSWERS = get_args(ops.Answer)


def _kernel(
    b: Binder, op: Op, name: str, blocks: int, arguments: Sequence[Any], defines: Defines = ()
) -> None:
    """A kernel that sums in double."""
    shared = THREADS * 8
    b.kernel(op, ("losses.cu", name), (blocks,), arguments, shared=shared, defines=defines)


@binds(ops.SoftmaxCrossEntropy)
def softmax_cross_entropy(b: Binder, op: ops.SoftmaxCrossEntropy) -> None:
    n, losses = op.x.shape[0], b.scratch(op.x.shape[0], "float32")
    ends = (b.floats(op.x), op.target, b.output(op.log_p), losses)
    arguments = (*ends, *op.x.shape, _smoothing(b, op))
    kernel, block = ("losses.cu", "log_softmax_loss"), (32 * ROWS_A_BLOCK,)
    b.kernel(op, kernel, (ceil_div(n, ROWS_A_BLOCK),), arguments, block=block)
    _reduce(b, op, losses)


def _smoothing(
    b: Binder, op: ops.SoftmaxCrossEntropy | ops.SoftmaxCrossEntropyBackward
) -> Varying[Any]:
    live = b.live.add(op, ("label_smoothing",))
    return Varying(live, lambda op: f32(op.label_smoothing))


@binds(ops.RowLoss)
def row_loss(b: Binder, op: ops.RowLoss) -> None:
    losses = b.scratch(op.x.shape[0], "float32")
    arguments = (b.floats(op.x), _target(b, op), losses, *op.x.shape)
    kernel, size, wide = (ROWS, "row_loss"), op.x.shape[0], _wide(op)
    b.kernel(op, kernel, size, arguments, defines=wide, formula=op.formula)
    _reduce(b, op, losses)


def _reduce(b: Binder, op: ops.RowLoss | ops.SoftmaxCrossEntropy, losses: Any) -> None:
    arguments = (losses, _target(b, op), b.output(op.loss), len(losses), op.reduction == "mean")
    _kernel(b, op, "reduce_loss", 1, arguments, _wide(op))


def _target(
    b: Binder, op: ops.RowLoss | ops.RowLossBackward | ops.SoftmaxCrossEntropy | ops.Metrics
) -> Any:
    return b.words(b.floats(op.target)) if _wide(op) else op.target


def _wide(op: ops.RowLoss | ops.RowLossBackward | ops.SoftmaxCrossEntropy | ops.Metrics) -> Defines:
    """How many numbers a row of targets has, if it has any."""
    return (("WIDE", op.target.shape[1]),) if op.target.dtype == "float32" else ()


@binds(ops.RowLossBackward)
def row_loss_backward(b: Binder, op: ops.RowLossBackward) -> None:
    ends = (b.floats(op.x), _target(b, op), b.output(op.dx))
    kernel = (ROWS, "row_loss_backward")
    grid = (blocks_for(op.x.shape[0] * 32, THREADS, MOST_BLOCKS),)
    arguments = (*ends, *op.x.shape, op.reduction == "mean")
    given = (grid, arguments, None, (THREADS,), THREADS * 8, _wide(op))
    b.kernel(op, kernel, *given, formula=op.formula)


@binds(ops.SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(b: Binder, op: ops.SoftmaxCrossEntropyBackward) -> None:
    ends = (b.floats(op.log_p), op.target, b.output(op.dx), *op.dx.shape)
    blocks = blocks_for(op.dx.size, THREADS, MOST_BLOCKS)
    mean = op.reduction == "mean"
    _kernel(b, op, "loss_backward", blocks, (*ends, _smoothing(b, op), mean))


@binds(ops.Metrics)
def metrics(b: Binder, op: ops.Metrics) -> None:
    ends = (b.floats(op.scores), _target(b, op), op.loss, op.sums)
    if wide := _wide(op):
        how = (op.reduction == "mean", _ANSWERS.index(op.answer), f32(op.threshold))
        _kernel(b, op, "metrics_wide", 1, (*ends, op.scores.shape[0], *how), wide)
        return
    arguments = (*ends, *op.scores.shape, op.reduction == "mean")
    threads = min(MOST_THREADS, 1 << max(5, (op.scores.shape[0] - 1).bit_length()))
    kernel = ("losses.cu", "metrics")
    b.kernel(op, kernel, (1,), arguments, block=(threads,), shared=threads * 8)
