"""The loss of RBF units: penalties, and competition between the classes."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ...common.options import NotNegative
from ...graph.ops.formulas import Array, RowFormula, one_hot
from .loss import Loss


class MapCriterion(RowFormula):
    """-x[t] + log(e^-j + sum over k of e^x[k]), x the negative penalties of RBF units.

    LeCun et al. 1998, eq. 9: e^-j is the weight of a class for all that is not a known character.
    Without ``competition`` it is -x[t], eq. 8.
    """

    cuda = """
        __device__ float common(Row r) {
            if (!competition) return 0.0f;
            float top = -j;
            for (int k = 0; k < r.classes; ++k) top = fmaxf(top, r.x[k]);
            float total = expf(-j - top);
            for (int k = 0; k < r.classes; ++k) total += expf(r.x[k] - top);
            return top + logf(total);
        }
        __device__ float value(Row r) { return r.common - r.x[r.target]; }
        __device__ float slope(Row r, int k) {
            return (competition ? expf(r.x[k] - r.common) : 0.0f) - r.right(k);
        }
    """
    j: float = 10.0
    competition: bool = True

    def value(self, x: Array, target: Array) -> Array:
        each = -(one_hot(target, x) * x).sum(1)
        return np.asarray(each + self._log_sum(x)[:, 0] if self.competition else each)

    def gradient(self, x: Array, target: Array) -> Array:
        dx = -one_hot(target, x)
        return dx + np.exp(x - self._log_sum(x)) if self.competition else dx

    def _log_sum(self, x: Array) -> Array:
        """The logarithm; less the largest exponent, so that nothing overflows: (N, 1)."""
        top = np.maximum(x.max(1, keepdims=True), -self.j)
        total = np.exp(-self.j - top) + np.exp(x - top).sum(1, keepdims=True)
        return np.asarray(top + np.log(total))


class RbfMapLoss(Loss):
    """Penalty of the right class + log(exp(-j) + sum of exp(-penalty)), for an rbf layer.

    The scores are the negative penalties. The second term raises the penalties of the other
    classes, but hardly those above j; without ``competition`` it is omitted. Source: LeCun et al.
    1998, eq. 9 and 8.
    """

    kind = "rbf_map"
    softmax = True
    rule = MapCriterion
    j: Annotated[NotNegative, "Beyond it, penalties of wrong classes hardly increase."] = 10.0
    competition: Annotated[
        bool, "false omits the logarithm and leaves only the right class's penalty."
    ] = True
