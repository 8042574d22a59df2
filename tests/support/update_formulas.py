"""Optimizers that are a formula, with no state, one and two: PyTorch's, and the sign alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dnnstack.backends.base import Array
from dnnstack.graph.ops import UpdateFormula
from dnnstack.optimizers.adagrad import AdagradUpdate
from dnnstack.optimizers.lion import LionUpdate
from dnnstack.optimizers.rmsprop import RmspropUpdate
from dnnstack.optimizers.rules import ElementwiseRule


class AdadeltaUpdate(UpdateFormula):
    """v = rho v + (1 - rho) g^2; d = sqrt(u + eps) / sqrt(v + eps) g; u as v, of d; p -= lr d."""

    families = ("adadelta_v", "adadelta_u")
    flops = 13
    cuda = """
        __device__ float update(float p, float g, float* states, Rule r) {
            g = fmaf(r.decay, p, g);
            states[0] = rho * states[0] + (1.0f - rho) * g * g;
            float delta = sqrtf(states[1] + eps) / sqrtf(states[0] + eps) * g;
            states[1] = rho * states[1] + (1.0f - rho) * delta * delta;
            return p - r.lr * delta;
        }
    """
    rho: float = 0.9
    eps: float = 1e-6

    def update(
        self, p: Array, g: Array, states: Sequence[Array], lr: float, weight_decay: float, t: int
    ) -> None:
        v, u = states
        g = g + weight_decay * p
        v *= self.rho
        v += (1.0 - self.rho) * g * g
        delta = np.sqrt(u + self.eps) / np.sqrt(v + self.eps) * g
        u *= self.rho
        u += (1.0 - self.rho) * delta * delta
        p -= lr * delta


class SignUpdate(UpdateFormula):
    """p -= lr (sign(g) + wd p)."""

    flops = 2
    cuda = """
        __device__ float update(float p, float g, float* states, Rule r) {
            return p - r.lr * fmaf(r.decay, p, (g > 0.0f) - (g < 0.0f));
        }
    """

    def update(
        self, p: Array, g: Array, states: Sequence[Array], lr: float, weight_decay: float, t: int
    ) -> None:
        p -= lr * (np.sign(g) + weight_decay * p)


@dataclass(frozen=True, kw_only=True)
class ByFormula(ElementwiseRule):
    kind = "by_formula"
    chosen: UpdateFormula

    def formula(self) -> UpdateFormula:
        return self.chosen


FORMULAS: dict[str, UpdateFormula] = {
    "adagrad": AdagradUpdate(),
    "adagrad-options": AdagradUpdate(0.1, 0.3, 1e-3),
    "adadelta": AdadeltaUpdate(),
    "sign": SignUpdate(),
    "rmsprop": RmspropUpdate(),
    "rmsprop-momentum": RmspropUpdate(0.9, 1e-3, 0.8),
    "rmsprop-centered": RmspropUpdate(0.9, 1e-3, 0.0, True),
    "rmsprop-options": RmspropUpdate(0.9, 1e-3, 0.8, True),
    "lion": LionUpdate(),
    "lion-options": LionUpdate(0.6, 0.8),
}
