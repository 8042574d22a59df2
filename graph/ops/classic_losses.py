"""Losses of the older literature; a target of -1 masks its sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from ..graph import Op, Tensor
from .losses import Reduction
from .rules import need, same

CostKind = Literal["one_minus_p", "squared_distance"]


@dataclass(frozen=True, kw_only=True)
class _Loss(Op):
    """A loss of scores or probabilities x: (N, K) and target: (N,) int32; loss: (1,)."""

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("loss",)
    x: Tensor
    target: Tensor
    loss: Tensor
    reduction: Reduction = "mean"

    def check(self) -> None:
        fits = len(self.x.shape) == 2 and self.target.shape == self.x.shape[:1]
        need(self, fits and self.loss.shape == (1,), self.x, self.target, self.loss)

    def flops(self) -> int:
        return 3 * self.x.size


@dataclass(frozen=True, kw_only=True)
class _LossBackward(Op):
    """dx, the gradient of the loss above with respect to x; dx: (N, K), zero where masked."""

    inputs: ClassVar = ("x", "target")
    outputs: ClassVar = ("dx",)
    x: Tensor
    target: Tensor
    dx: Tensor
    reduction: Reduction = "mean"

    def check(self) -> None:
        need(self, self.target.shape == self.x.shape[:1], self.x, self.target)
        same(self, self.x, self.dx)

    def flops(self) -> int:
        return 3 * self.x.size


@dataclass(frozen=True, kw_only=True)
class MultiMargin(_Loss):
    """loss = mean or sum over n of (1 / K) sum over k != t of max(0, margin - x[n,t] + x[n,k])^p.

    t is the target, p 1 or 2: the multi-class hinge of Weston and Watkins 1999, scaled as
    PyTorch's MultiMarginLoss.
    """

    margin: float = 1.0
    power: int = 1


@dataclass(frozen=True, kw_only=True)
class MultiMarginBackward(_LossBackward):
    """With m = max(0, margin - x[n,t] + x[n,k]): dx[n,k] = p m^(p-1) [m > 0] / K for k != t.

    dx[n,t] is minus the sum of these; all divided by the count where the loss is a mean.
    """

    margin: float = 1.0
    power: int = 1


@dataclass(frozen=True, kw_only=True)
class ExpectedCost(_Loss):
    """loss = mean or sum over n of 1 - x[n,t], or of sum over k of x[n,k] (k - t)^2.

    x are probabilities, t is the target: ``one_minus_p`` and ``squared_distance``.
    """

    kind: CostKind


@dataclass(frozen=True, kw_only=True)
class ExpectedCostBackward(_LossBackward):
    """dx[n,k] = -[k = t], or (k - t)^2; divided by the count where the loss is a mean."""

    kind: CostKind


@dataclass(frozen=True, kw_only=True)
class MapCriterion(_Loss):
    """loss = mean or sum over n of -x[n,t] + log(e^-j + sum over k of e^x[n,k]).

    With x the negative penalties of RBF units this is LeCun et al. 1998, eq. 9: e^-j is the weight
    of a class for what is no known character. Without ``rubbish`` (j None) it is -x[n,t], eq. 8.
    """

    rubbish: float | None = None


@dataclass(frozen=True, kw_only=True)
class MapCriterionBackward(_LossBackward):
    """dx[n,k] = e^x[n,k] / (e^-j + sum over i of e^x[n,i]) - [k = t]; without j -[k = t] alone.

    Divided by the count where the loss is a mean.
    """

    rubbish: float | None = None


@dataclass(frozen=True, kw_only=True)
class PerceptronError(_Loss):
    """loss = mean or sum over n of sum over k of |x[n,k] - [k = t]|: wrong units, for x of 0 and 1.

    x are outputs of Heaviside.
    """


@dataclass(frozen=True, kw_only=True)
class PerceptronErrorBackward(_LossBackward):
    """dx[n,k] = x[n,k] - [k = t], divided by the count where the loss is a mean.

    Not a gradient: what Rosenblatt's rule multiplies with the unit's input.
    """
