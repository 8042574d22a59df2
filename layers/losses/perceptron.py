"""The perceptron rule, which is no gradient."""

from __future__ import annotations

from collections.abc import Sequence

from ...common.errors import ShapeError
from ...graph.graph import Graph, Tensor
from ...graph.ops import PerceptronError, PerceptronErrorBackward
from ..layer import Layer
from .loss import Loss

PERCEPTRON_ERROR = "loss.error"


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
