"""RMSprop: steps divided by the root of a running average of squared gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from ..common.options import Positive, Share
from ..graph.ops.formulas import Array, UpdateFormula
from .rules import ElementwiseRule


class RmspropUpdate(UpdateFormula):
    """v += (1 - a) (g^2 - v); d = g / (sqrt(v) + eps); buf = momentum buf + d; p -= lr buf.

    ``centered``: m += (1 - a) (g - m), and v - m^2 takes the place of v in the root.
    """

    flops = 10
    cuda = """
        __device__ float update(float p, float g, float* states, Rule r) {
            g = fmaf(r.decay, p, g);
            float square = states[0] += away * (g * g - states[0]);
            if (centered) {
                float mean = states[centered] += away * (g - states[centered]);
                square = fmaxf(square - mean * mean, 0.0f);
            }
            float move = g / (sqrtf(square) + eps);
            if (momentum > 0.0f) {
                float* buffer = states + 1 + centered;
                move = *buffer = momentum * *buffer + move;
            }
            return p - r.lr * move;
        }
    """
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def constants(self) -> dict[str, Any]:
        # As a difference of float32 it would be rounded.
        return {**super().constants(), "away": 1.0 - self.alpha}

    @property
    def families(self) -> tuple[str, ...]:
        kept = {"rmsprop_v": True, "rmsprop_m": self.centered, "momentum": self.momentum > 0}
        return tuple(family for family, used in kept.items() if used)

    def update(
        self, p: Array, g: Array, states: Sequence[Array], lr: float, weight_decay: float, t: int
    ) -> None:
        square, *others = states
        if weight_decay:
            g = g + weight_decay * p
        square += (1.0 - self.alpha) * (g * g - square)
        if self.centered:
            mean = others[0]
            mean += (1.0 - self.alpha) * (g - mean)
            # Rounded, the variance of gradients that hardly change may fall below 0.
            square = np.maximum(square - mean * mean, 0.0)
        move = g / (np.sqrt(square) + self.eps)
        if self.momentum:
            buffer = others[-1]
            buffer *= self.momentum
            buffer += move
            move = buffer
        p -= lr * move


@dataclass(frozen=True)
class Rmsprop(ElementwiseRule):
    """RMSprop as in PyTorch: v = alpha * v + (1 - alpha) * g**2; p -= lr * g / (sqrt(v) + eps).

    Source: Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5.
    """

    kind = "rmsprop"
    alpha: Annotated[Share, "Share of the running averages of g**2 and g that is kept."] = 0.99
    eps: Annotated[Positive, "Added to the square root in the denominator."] = 1e-8
    momentum: Annotated[Share, "Share of the last update's direction that is kept."] = 0.0
    centered: Annotated[
        bool, "Divide by the gradient's standard deviation: v less the square of the average of g."
    ] = False

    def formula(self) -> RmspropUpdate:
        return RmspropUpdate(self.alpha, self.eps, self.momentum, self.centered)
