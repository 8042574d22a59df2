"""The mean squared error."""

from __future__ import annotations

import numpy as np

from ...graph.ops.formulas import Array, RowFormula, one_hot
from .loss import Loss


class MeanSquaredError(RowFormula):
    """(1 / K) sum over k of (x[k] - [k = t])^2."""

    flops = (3, 2)
    cuda = """
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) {
                float gap = r.x[k] - r.right(k);
                loss += gap * gap / r.classes;
            }
            return loss;
        }
        __device__ float slope(Row r, int k) { return 2.0f / r.classes * (r.x[k] - r.right(k)); }
    """

    def value(self, x: Array, target: Array) -> Array:
        error = x - one_hot(target, x)
        return np.asarray((error * error).mean(1))

    def gradient(self, x: Array, target: Array) -> Array:
        return x - one_hot(target, x)

    def scale(self, classes: int) -> float:
        return 2.0 / classes


class MeanSquaredErrorLoss(Loss):
    """Mean of the squared differences to the one-hot target."""

    kind = "mse"
    rule = MeanSquaredError
