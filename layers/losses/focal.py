"""The focal loss: cross-entropy with less weight on samples that are already right."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ...common.options import NotNegative
from ...graph.ops.formulas import Array, RowFormula, one_hot
from .loss import Loss


class Focal(RowFormula):
    """-(1 - p)^focusing log p, p the probability of the target, x[t] its logarithm."""

    of = "log_p"
    flops = (6, 8)
    cuda = """
        __device__ float miss(float log_p) { return fmaxf(-expm1f(log_p), 1e-30f); }
        __device__ float value(Row r) {
            float log_p = r.x[r.target];
            return -powf(miss(log_p), focusing) * log_p;
        }
        __device__ float slope(Row r, int k) {
            if (k != r.target) return 0.0f;
            float log_p = r.x[k], q = miss(log_p);
            return focusing * powf(q, focusing - 1.0f) * expf(log_p) * log_p - powf(q, focusing);
        }
    """
    focusing: float = 2.0

    def value(self, x: Array, target: Array) -> Array:
        log_p = (one_hot(target, x) * x).sum(1)
        return np.asarray(-(self._miss(log_p) ** self.focusing) * log_p)

    def gradient(self, x: Array, target: Array) -> Array:
        right = one_hot(target, x)
        log_p = (right * x).sum(1, keepdims=True)
        q = self._miss(log_p)
        each = self.focusing * q ** (self.focusing - 1.0) * np.exp(log_p) * log_p - q**self.focusing
        return np.asarray(right * each)

    def _miss(self, log_p: Array) -> Array:
        """1 - p, kept above 0, where powers below 1 have no slope."""
        return np.maximum(-np.expm1(log_p), 1e-30)


class FocalLoss(Loss):
    """-(1 - p[t]) ** focusing * log(p[t]); a final softmax layer is fused with it.

    Source: Lin et al. 2017, eq. 4, whose gamma is ``focusing``; 0 gives the cross-entropy.
    """

    kind = "focal"
    softmax = True
    rule = Focal
    focusing: Annotated[
        NotNegative,
        "The larger, the less weight on samples that are already right; 0: equal weights.",
    ] = 2.0
