"""Adagrad: the rate of every number of a parameter falls with its past gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..common.options import NotNegative, Positive
from ..graph.ops.formulas import Array, UpdateFormula
from .rules import ElementwiseRule


class AdagradUpdate(UpdateFormula):
    """sum += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(sum) + eps)."""

    families = ("adagrad_sum",)
    flops = 6
    cuda = """
        __device__ float update(float p, float g, float* states, Rule r) {
            g = fmaf(r.decay, p, g);
            states[0] = (r.t == 1 ? initial_accumulator_value : states[0]) + g * g;
            return p - r.lr / (1.0f + (r.t - 1) * lr_decay) * g / (sqrtf(states[0]) + eps);
        }
    """
    lr_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10

    def update(
        self, p: Array, g: Array, states: Sequence[Array], lr: float, weight_decay: float, t: int
    ) -> None:
        (total,) = states
        if t == 1:
            total[...] = self.initial_accumulator_value
        if weight_decay:
            g = g + weight_decay * p
        total += g * g
        p -= lr / (1.0 + (t - 1) * self.lr_decay) * g / (np.sqrt(total) + self.eps)


@dataclass(frozen=True)
class Adagrad(ElementwiseRule):
    """Adagrad as in PyTorch: sum += g**2; p -= lr * g / (sqrt(sum) + eps).

    Source: Duchi, Hazan and Singer 2011, fig. 1.
    """

    kind = "adagrad"
    lr_decay: Annotated[NotNegative, "At step t lr is divided by 1 + t * lr_decay."] = 0.0
    initial_accumulator_value: Annotated[NotNegative, "Initial value of each sum."] = 0.0
    eps: Annotated[Positive, "Added to the square root in the denominator."] = 1e-10

    def formula(self) -> AdagradUpdate:
        return AdagradUpdate(self.lr_decay, self.initial_accumulator_value, self.eps)
