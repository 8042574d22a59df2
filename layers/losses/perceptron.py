"""The perceptron rule, which is not a gradient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...common.errors import ShapeError
from ...graph.ops.formulas import Array, RowFormula, one_hot
from ..layer import Layer
from .loss import Loss

PERCEPTRON_ERROR = "loss.error"


class PerceptronError(RowFormula):
    """sum over k of |x[k] - t[k]|: the number of wrong units if x is 0 or 1, as from Heaviside.

    The t of a class is one-hot. In place of a gradient there is the error x[k] - t[k], which
    Rosenblatt's rule multiplies by the unit's input.
    """

    cuda = """
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) loss += fabsf(r.x[k] - r.right(k));
            return loss;
        }
        __device__ float slope(Row r, int k) { return r.x[k] - r.right(k); }
    """

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray(np.abs(x - one_hot(target, x)).sum(1))

    def gradient(self, x: Array, target: Array) -> Array:
        return x - one_hot(target, x)


class PerceptronLoss(Loss):
    """Rosenblatt's rule for one dense layer before heaviside: w += lr * (wanted - y) * x.

    The loss is the mean number of wrong units; the right output of unit k is [k = target]. Backward
    does not return a gradient but y - [k = target], so that plain SGD does
    w += lr ([k = target] - y) x (Rosenblatt 1958), for the one layer of weights.
    """

    kind = "perceptron"
    kinds = ("class", "yes_no")
    gradient = PERCEPTRON_ERROR
    rule = PerceptronError

    def check_layers(self, layers: Sequence[Layer]) -> None:
        if not layers or layers[-1].differentiable:
            raise ShapeError("the loss 'perceptron' needs 'heaviside' as the last layer")
        super().check_layers(layers[:-1])
        trained = [each.name for each in layers if each.parameters() and not each.children]
        if len(trained) != 1:
            found = ", ".join(f"'{name}'" for name in trained) or "none"
            raise ShapeError(
                f"the perceptron rule trains one layer of weights, but there are "
                f"{len(trained)} ({found}); keep one 'dense' before 'heaviside', or use "
                "'sigmoid' and 'loss: cross_entropy', which train several"
            )
