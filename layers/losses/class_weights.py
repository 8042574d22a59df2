"""Weights of classes: each sample's loss is multiplied by that of its class."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import numpy as np

from ...graph.ops.formulas import Array, RowFormula


class Weighted(RowFormula):
    """weights[t] times the loss ``inner`` of a row whose class is t; weights: one for each class.

    Of a distribution, the mean weight of its classes. The mean of a batch is still over its
    samples, not over their weights.
    """

    inner: RowFormula
    weights: tuple[float, ...]

    @property
    def name(self) -> str:
        return f"Weighted{self.inner.name}"

    @property
    def of(self) -> Any:  # type: ignore[override]
        return self.inner.of

    @property
    def flops(self) -> tuple[int, int]:  # type: ignore[override]
        value, gradient = self.inner.flops
        return value + 1, gradient + 1

    @property
    def cuda(self) -> str:  # type: ignore[override]
        numbers = ", ".join(f"{float(np.float32(weight)).hex()}f" for weight in self.weights)
        return f"""
namespace unweighted {{
using ::common;
{dedent(self.inner.cuda)}
}}
__device__ const float class_weights[] = {{{numbers}}};
__device__ float common(Row r) {{ return unweighted::common(r); }}
__device__ float value(Row r) {{ return r.of(class_weights) * unweighted::value(r); }}
__device__ float slope(Row r, int k) {{ return r.of(class_weights) * unweighted::slope(r, k); }}
"""

    def constants(self) -> dict[str, Any]:
        return self.inner.constants()

    def value(self, x: Array, target: Array) -> Array:
        return self._of(target, x) * self.inner.value(x, target)

    def gradient(self, x: Array, target: Array) -> Array:
        return self._of(target, x)[:, None] * self.inner.gradient(x, target)

    def scale(self, classes: int) -> float:
        return self.inner.scale(classes)

    def _of(self, target: Array, x: Array) -> Array:
        """The weight of each sample; of a masked one any, because its results are discarded."""
        weights = np.array(self.weights, x.dtype)
        return weights[target] if target.ndim == 1 else np.asarray(target.astype(x.dtype) @ weights)
