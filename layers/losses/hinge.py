"""The multi-class hinge loss."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from ...common.options import Positive
from ...graph.ops.formulas import Array, RowFormula, one_hot
from .loss import Loss


class MultiMargin(RowFormula):
    """(1 / K) sum over k != t of m[k]^p, m[k] = max(0, margin - x[t] + x[k]); p is 1 or 2.

    dx[k] = p m[k]^(p - 1) [m[k] > 0] / K for k != t, and dx[t] is minus the sum of these.
    """

    cuda = """
        __device__ float margin_of(Row r, int k) { return margin - r.x[r.target] + r.x[k]; }
        __device__ float slope_of(Row r, int k) {
            float m = margin_of(r, k);
            return m > 0.0f ? (power == 1 ? 1.0f : power * powf(m, power - 1)) / r.classes : 0.0f;
        }
        __device__ float value(Row r) {
            float loss = 0.0f;
            for (int k = 0; k < r.classes; ++k) {
                float m = fmaxf(margin_of(r, k), 0.0f);
                if (k != r.target) loss += power == 1 ? m : powf(m, power);
            }
            return loss / r.classes;
        }
        __device__ float common(Row r) {
            float sum = 0.0f;
            for (int k = 0; k < r.classes; ++k) sum += k == r.target ? 0.0f : slope_of(r, k);
            return sum;
        }
        __device__ float slope(Row r, int k) { return k == r.target ? -r.common : slope_of(r, k); }
    """
    margin: float = 1.0
    power: int = 1

    def value(self, x: Array, target: Array) -> Array:
        return np.asarray((self._margins(x, target) ** self.power).mean(1))

    def gradient(self, x: Array, target: Array) -> Array:
        m = self._margins(x, target)
        slope = np.where(m > 0, self.power * m ** (self.power - 1), 0.0)
        dx = slope - one_hot(target, x) * slope.sum(1, keepdims=True)
        return np.asarray(dx / x.shape[1])

    def _margins(self, x: Array, target: Array) -> Array:
        """m, 0 for the target itself: (N, K)."""
        right = one_hot(target, x)
        own = (right * x).sum(1, keepdims=True)
        return np.where(right > 0, 0.0, np.maximum(self.margin - own + x, 0.0)).astype(x.dtype)


class HingeLoss(Loss):
    """(1 / K) sum over k != t of max(0, margin - s[t] + s[k]) ** power.

    The multi-class margin loss of Weston and Watkins 1999, as in PyTorch's MultiMarginLoss.
    """

    kind = "hinge"
    unbounded = True
    rule = MultiMargin
    margin: Annotated[Positive, "How far the right score should be above the others."] = 1.0
    power: Annotated[Literal[1, 2], "1, or 2 for the squared hinge."] = 1
