"""Losses of the older literature: margins, expected costs, RBF penalties, the perceptron rule."""

from __future__ import annotations

from collections.abc import Sequence

from ..common.errors import ShapeError
from .graph import Graph, Tensor
from .layer import Layer
from .loss import Loss
from .ops import (
    CostKind,
    ExpectedCost,
    ExpectedCostBackward,
    MapCriterion,
    MapCriterionBackward,
    MultiMargin,
    MultiMarginBackward,
    PerceptronError,
    PerceptronErrorBackward,
    Reduction,
    Softmax,
    SoftmaxBackward,
)

PERCEPTRON_ERROR = "loss.error"


class HingeLoss(Loss):
    """(1 / K) sum over k != t of max(0, margin - score[t] + score[k])^power, averaged.

    The multi-class margin loss of Weston and Watkins 1999, as PyTorch's MultiMarginLoss.
    """

    kind = "hinge"
    unbounded = True

    def __init__(
        self, *, margin: float = 1.0, power: int = 1, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin, self.power = margin, power

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", x=scores, target=target)
        graph.add(
            MultiMargin(
                x=scores,
                target=target,
                loss=loss,
                margin=self.margin,
                power=self.power,
                reduction=self.reduction,
            )
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        x, target = graph.kept("loss")["x"], graph.kept("loss")["target"]
        dx = graph.tensor("loss.dx", x.shape)
        graph.add(
            MultiMarginBackward(
                x=x,
                target=target,
                dx=dx,
                margin=self.margin,
                power=self.power,
                reduction=self.reduction,
            )
        )
        return dx


class ExpectedCostLoss(Loss):
    """An error that is linear in the probabilities p = softmax(scores), averaged over the batch.

    The softmax belongs to the loss: a final ``softmax`` layer of the network is this one.
    """

    softmax = True
    cost: CostKind

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        p = graph.tensor("loss.p", scores.shape)
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", p=p, target=target)
        graph.add(Softmax(x=scores, y=p))
        graph.add(
            ExpectedCost(x=p, target=target, loss=loss, kind=self.cost, reduction=self.reduction)
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        p, target = graph.kept("loss")["p"], graph.kept("loss")["target"]
        dp = graph.tensor("loss.dp", p.shape)
        dx = graph.tensor("loss.dx", p.shape)
        graph.add(
            ExpectedCostBackward(
                x=p, target=target, dx=dp, kind=self.cost, reduction=self.reduction
            )
        )
        graph.add(SoftmaxBackward(y=p, dy=dp, dx=dx))
        return dx


class OneMinusPLoss(ExpectedCostLoss):
    """1 - p[target]."""

    kind = "one_minus_p"
    cost = "one_minus_p"


class SquaredDistanceLoss(ExpectedCostLoss):
    """sum over k of p[k] (k - target)^2: the classes are numbers, near misses cost less."""

    kind = "squared_distance"
    cost = "squared_distance"


class RbfMapLoss(Loss):
    """penalty[t] + log(e^-j + sum over k of e^-penalty[k]), averaged: LeCun et al. 1998, eq. 9.

    The scores are the negative penalties of an ``rbf`` layer. The second term raises the penalties
    of the other classes, those above j hardly. Without ``competition`` it is left out: eq. 8.
    """

    kind = "rbf_map"
    softmax = True

    def __init__(
        self, *, j: float = 10.0, competition: bool = True, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.rubbish = j if competition else None

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", x=scores, target=target)
        graph.add(
            MapCriterion(
                x=scores,
                target=target,
                loss=loss,
                rubbish=self.rubbish,
                reduction=self.reduction,
            )
        )
        return loss

    def backward(self, graph: Graph) -> Tensor:
        x, target = graph.kept("loss")["x"], graph.kept("loss")["target"]
        dx = graph.tensor("loss.dx", x.shape)
        graph.add(
            MapCriterionBackward(
                x=x, target=target, dx=dx, rubbish=self.rubbish, reduction=self.reduction
            )
        )
        return dx


class PerceptronLoss(Loss):
    """The number of wrong units, averaged; backward is Rosenblatt's rule and no gradient.

    Each unit k should say [k = target]. What backward returns is y - [k = target], so that plain
    SGD does w += lr ([k = target] - y) x (Rosenblatt 1958), for the one layer of weights.
    """

    kind = "perceptron"

    def check_layers(self, layers: Sequence[Layer]) -> None:
        if not layers or layers[-1].differentiable:
            raise ShapeError("the loss 'perceptron' needs 'heaviside' as the last layer")
        super().check_layers(layers[:-1])
        trained = [each.name for each in layers if each.parameters() and not each.children]
        if len(trained) != 1:
            found = ", ".join(f"'{name}'" for name in trained) or "none"
            raise ShapeError(
                f"the perceptron rule trains one layer of weights, here are {len(trained)} "
                f"({found}); keep one 'dense' before 'heaviside', or use 'sigmoid' and "
                "'loss: cross_entropy', which train several"
            )

    def forward(self, graph: Graph, scores: Tensor, target: Tensor) -> Tensor:
        loss = graph.tensor("loss", (1,))
        graph.keep("loss", x=scores, target=target)
        graph.add(PerceptronError(x=scores, target=target, loss=loss, reduction=self.reduction))
        return loss

    def backward(self, graph: Graph) -> Tensor:
        x, target = graph.kept("loss")["x"], graph.kept("loss")["target"]
        dx = graph.tensor(PERCEPTRON_ERROR, x.shape)
        graph.add(PerceptronErrorBackward(x=x, target=target, dx=dx, reduction=self.reduction))
        return dx
