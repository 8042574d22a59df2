"""Lion: the sign of a momentum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np

from ..common.options import NotNegative, Share
from ..graph.ops.formulas import Array, UpdateFormula
from .adam import TWO
from .rules import ElementwiseRule


class LionUpdate(UpdateFormula):
    """p -= lr (sign(b1 m + (1 - b1) g) + wd p); m = b2 m + (1 - b2) g."""

    families = ("lion_m",)
    flops = 8
    cuda = """
        __device__ float update(float p, float g, float* states, Rule r) {
            float mixed = beta1 * states[0] + away1 * g;
            states[0] += away2 * (g - states[0]);
            return p - r.lr * fmaf(r.decay, p, (mixed > 0.0f) - (mixed < 0.0f));
        }
    """
    beta1: float = 0.9
    beta2: float = 0.99

    def constants(self) -> dict[str, Any]:
        # As differences of float32 they would be rounded.
        return {**super().constants(), "away1": 1.0 - self.beta1, "away2": 1.0 - self.beta2}

    def update(
        self, p: Array, g: Array, states: Sequence[Array], lr: float, weight_decay: float, t: int
    ) -> None:
        (mean,) = states
        sign = np.sign(self.beta1 * mean + (1.0 - self.beta1) * g)
        mean += (1.0 - self.beta2) * (g - mean)
        p -= lr * (sign + weight_decay * p)


@dataclass(frozen=True)
class Lion(ElementwiseRule):
    """Lion: u = sign(b1 * m + (1 - b1) * g); m = b2 * m + (1 - b2) * g; p -= lr * u.

    Source: Chen et al. 2023, "Symbolic discovery of optimization algorithms", algorithm 2.
    """

    kind = "lion"
    betas: Annotated[
        tuple[Share, Share], TWO, "Shares of m that are kept: in the step's direction, and in m."
    ] = (0.9, 0.99)
    weight_decay: Annotated[NotNegative, "p -= lr * weight_decay * p in the same step."] = field(
        default=0.0, kw_only=True
    )

    def formula(self) -> LionUpdate:
        return LionUpdate(*self.betas)
