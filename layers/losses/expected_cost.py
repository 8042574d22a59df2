"""Losses that are an expected cost: linear in the probabilities p = softmax(scores).

The softmax is part of the loss: a final ``softmax`` layer of the network is merged with it.
"""

from __future__ import annotations

import numpy as np

from ...graph.ops.formulas import Array, RowFormula, one_hot
from .loss import Loss


class OneMinusP(RowFormula):
    """1 - x[t], x probabilities."""

    of = "p"
    cuda = """
        __device__ float value(Row r) { return 1.0f - r.x[r.target]; }
        __device__ float slope(Row r, int k) { return -r.right(k); }
    """

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray(1.0 - (one_hot(target, x) * x).sum(1))

    def gradient(self, x: Array, target: Array) -> Array:
        return -one_hot(target, x)


class SquaredDistance(RowFormula):
    """sum over k of x[k] (k - t)^2, x probabilities."""

    of = "p"
    cuda = """
        __device__ float slope(Row r, int k) { return (k - r.target) * (k - r.target); }
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) loss += r.x[k] * slope(r, k);
            return loss;
        }
    """

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray((x * self.gradient(x, target)).sum(1))

    def gradient(self, x: Array, target: Array) -> Array:
        away = np.arange(x.shape[1]) - target[:, None]
        return np.asarray(away * away, x.dtype)


class OneMinusPLoss(Loss):
    """1 - p[t]; a final softmax layer is fused with it."""

    kind = "one_minus_p"
    softmax = True
    rule = OneMinusP


class SquaredDistanceLoss(Loss):
    """Sum over k of p[k] (k - t) ** 2, classes as numbers; a final softmax is fused with it."""

    kind = "squared_distance"
    softmax = True
    rule = SquaredDistance
