"""Losses of the older literature: one kernel for their rows, one for their gradients."""

from __future__ import annotations

from typing import Any

from ....graph.ops import (
    ExpectedCost,
    ExpectedCostBackward,
    MapCriterion,
    MapCriterionBackward,
    MultiMargin,
    MultiMarginBackward,
    PerceptronError,
    PerceptronErrorBackward,
)
from ..binding.bind import Binder, binds
from ..libraries.kernels import THREADS, f32, i32, linear_grid

# enum Loss of classic_losses.cu.
KINDS = ("multi_margin", "one_minus_p", "squared_distance", "map", "perceptron")
Loss = MultiMargin | ExpectedCost | MapCriterion | PerceptronError
Backward = (
    MultiMarginBackward | ExpectedCostBackward | MapCriterionBackward | PerceptronErrorBackward
)


def _numbers(op: Loss | Backward) -> tuple[str, float, float, bool]:
    """The kind, its two numbers, and whether the first is given at all."""
    if isinstance(op, (MultiMargin, MultiMarginBackward)):
        return "multi_margin", op.margin, op.power, True
    if isinstance(op, (ExpectedCost, ExpectedCostBackward)):
        return op.kind, 0.0, 0.0, True
    if isinstance(op, (MapCriterion, MapCriterionBackward)):
        return "map", op.rubbish or 0.0, 0.0, op.rubbish is not None
    return "perceptron", 0.0, 0.0, True


def _on_device(op: Loss | Backward) -> tuple[Any, ...]:
    kind, first, second, given = _numbers(op)
    return (i32(KINDS.index(kind)), f32(first), f32(second), i32(given))


def _loss(b: Binder, op: Loss) -> None:
    n, classes = op.x.shape
    losses, target = b.scratch(n, "float32"), b.home(op.target).array
    arguments = (b.floats(op.x).array, target, losses, i32(n), i32(classes), *_on_device(op))
    shown = {"kind": _numbers(op)[0]}
    b.kernel(op, ("classic_losses.cu", "classic_losses", False), linear_grid(n), arguments, shown)
    last = (losses, target, b.output(op.loss).array, i32(n), i32(op.reduction == "mean"))
    b.kernel(op, ("losses.cu", "reduce_loss", False), (1,), last, shared=THREADS * 8)


def _backward(b: Binder, op: Backward) -> None:
    n, classes = op.x.shape
    arguments = (
        *(b.floats(op.x).array, b.home(op.target).array, b.output(op.dx).array),
        *(i32(n), i32(classes), i32(op.reduction == "mean"), *_on_device(op)),
    )
    kernel = ("classic_losses.cu", "classic_losses_backward", False)
    b.kernel(op, kernel, linear_grid(n), arguments, {"kind": _numbers(op)[0]})


binds(MultiMargin)(_loss)
binds(ExpectedCost)(_loss)
binds(MapCriterion)(_loss)
binds(PerceptronError)(_loss)
binds(MultiMarginBackward)(_backward)
binds(ExpectedCostBackward)(_backward)
binds(MapCriterionBackward)(_backward)
binds(PerceptronErrorBackward)(_backward)
