"""Losses and metrics: kernels of ours that reduce on the device, in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....graph import ops
from ....graph.graph import Op
from ....graph.ops import RowFormula
from ..binding.bind import Binder, binds
from ..binding.launch_list import Varying
from ..libraries.kernels import THREADS, Defines, blocks_for, f32
from ..libraries.layout import ceil_div

ROWS_A_BLOCK = 4
ROWS = "row_loss.cu"
# Every block of a gradient counts the samples anew.
MOST_BLOCKS = 64
# The enumeration of losses.cu.
ANSWERS = ("largest", "threshold", "near")
# Of a block.
MOST_THREADS = 1024


def _kernel(b: Binder, op: Op, name: str, blocks: int, arguments: Sequence[Any]) -> None:
    """A kernel that sums in double."""
    b.kernel(op, ("losses.cu", name), (blocks,), arguments, shared=THREADS * 8)


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
    arguments = (b.floats(op.x), op.target, losses, *op.x.shape)
    size, defines = op.x.shape[0], _wide(op.formula)
    b.kernel(op, (ROWS, "row_loss"), size, arguments, defines=defines, formula=op.formula)
    _reduce(b, op, losses)


def _reduce(b: Binder, op: ops.RowLoss | ops.SoftmaxCrossEntropy, losses: Any) -> None:
    ends = (losses, op.target, b.output(op.loss), len(losses), op.reduction == "mean")
    if op.target.dtype == "float32":
        return _kernel(b, op, "reduce_wide_loss", 1, (*ends, op.x.shape[1]))
    return _kernel(b, op, "reduce_loss", 1, ends)


def _wide(formula: RowFormula) -> Defines:
    return (("WIDE", 1),) if formula.wide else ()


@binds(ops.RowLossBackward)
def row_loss_backward(b: Binder, op: ops.RowLossBackward) -> None:
    ends = (b.floats(op.x), op.target, b.output(op.dx))
    kernel = (ROWS, "row_loss_backward")
    grid = (blocks_for(op.x.shape[0] * 32, THREADS, MOST_BLOCKS),)
    arguments = (*ends, *op.x.shape, op.reduction == "mean")
    further = {"defines": _wide(op.formula), "formula": op.formula}
    b.kernel(op, kernel, grid, arguments, shared=THREADS * 8, **further)


@binds(ops.SoftmaxCrossEntropyBackward)
def softmax_cross_entropy_backward(b: Binder, op: ops.SoftmaxCrossEntropyBackward) -> None:
    ends = (b.floats(op.log_p), op.target, b.output(op.dx), *op.dx.shape)
    blocks = blocks_for(op.dx.size, THREADS, MOST_BLOCKS)
    mean = op.reduction == "mean"
    _kernel(b, op, "loss_backward", blocks, (*ends, _smoothing(b, op), mean))


@binds(ops.Metrics)
def metrics(b: Binder, op: ops.Metrics) -> None:
    ends = (b.floats(op.scores), op.target, op.loss, op.sums)
    arguments: tuple[Any, ...] = (*ends, *op.scores.shape, op.reduction == "mean")
    threads = min(MOST_THREADS, 1 << max(5, (op.scores.shape[0] - 1).bit_length()))
    kernel = ("losses.cu", "metrics_wide" if op.wide else "metrics")
    arguments += (ANSWERS.index(op.answer), f32(op.threshold)) if op.wide else ()
    b.kernel(op, kernel, (1,), arguments, block=(threads,), shared=threads * 8)
