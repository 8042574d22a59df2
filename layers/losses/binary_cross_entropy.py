"""Binary cross-entropy: of questions of yes or no that do not depend on each other."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from ...common.options import Share
from ...common.targets import Kind
from ...graph.ops.formulas import Array, RowFormula
from .loss import Loss


class BinaryCrossEntropy(RowFormula):
    """(1 / K) sum over k of (1 - q) log(1 + e^x) + w q log(1 + e^-x), q = (1 - s) t + s / 2.

    x[k] are scores, whose sigmoid is the probability of yes; s: label smoothing; w[k]: what the
    loss of a yes to question k is multiplied by, 1 without ``weights``.
    """

    flops = (8, 6)
    label_smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    @property
    def cuda(self) -> str:  # type: ignore[override]
        numbers = ", ".join(f"{float(np.float32(weight)).hex()}f" for weight in self.weights)
        table = f"__device__ const float yes_weights[] = {{{numbers}}};" if numbers else ""
        weight = "yes_weights[k]" if numbers else "1.0f"
        return f"""
{table}
__device__ float weight(int k) {{ return {weight}; }}
__device__ float wanted(Row r, int k) {{
    return (1.0f - label_smoothing) * r.right(k) + 0.5f * label_smoothing;
}}
__device__ float log1p_exp(float x) {{ return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }}
__device__ float chance(float x) {{
    float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}}
__device__ float value(Row r) {{
    float loss = 0.0f;
    for (int k = 0; k < r.classes; ++k) {{
        float q = wanted(r, k);
        loss += (1.0f - q) * log1p_exp(r.x[k]) + weight(k) * q * log1p_exp(-r.x[k]);
    }}
    return loss / r.classes;
}}
__device__ float slope(Row r, int k) {{
    float q = wanted(r, k), x = r.x[k];
    return ((1.0f - q) * chance(x) - weight(k) * q * chance(-x)) / r.classes;
}}
"""

    def constants(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing}

    def value(self, x: Array, target: Array) -> Array:
        no, yes = self._shares(x, target)
        return np.asarray((no * np.logaddexp(0.0, x) + yes * np.logaddexp(0.0, -x)).mean(1))

    def gradient(self, x: Array, target: Array) -> Array:
        no, yes = self._shares(x, target)
        e = np.exp(-np.abs(x))
        small, large = e / (1.0 + e), 1.0 / (1.0 + e)
        return np.where(x < 0, no * small - yes * large, no * large - yes * small)

    def scale(self, classes: int) -> float:
        return 1.0 / classes

    def _shares(self, x: Array, target: Array) -> tuple[Array, Array]:
        """1 - q and w q: (N, K)."""
        q = ((1.0 - self.label_smoothing) * target + 0.5 * self.label_smoothing).astype(x.dtype)
        return 1.0 - q, q * np.array(self.weights, x.dtype) if self.weights else q


class BinaryCrossEntropyLoss(Loss):
    """-log of the probability of the right answer, yes or no, averaged over the questions.

    From scores; a final sigmoid layer is fused with it. Class weights are those of a yes.
    """

    kind = "binary_cross_entropy"
    kinds = ("yes_no",)
    target: Kind = "yes_no"
    sigmoid = True
    rule = BinaryCrossEntropy
    label_smoothing: Annotated[Share, "Share of each answer that is spread over yes and no."] = 0.0

    @property
    def formula(self) -> RowFormula:
        return self.rule(label_smoothing=self.label_smoothing, weights=self.class_weights)
