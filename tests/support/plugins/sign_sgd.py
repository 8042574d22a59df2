"""SGD by the signs of the gradients, as an optimizer."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from dnnstack.plugins import ElementwiseRule, Share, UpdateFormula


class SignUpdate(UpdateFormula):
    """m = momentum m + g; p -= lr sign(m)."""

    families = ("sign_momentum",)
    flops = 4
    momentum: float = 0.0

    def update(self, p, g, states, lr, weight_decay, t):
        (m,) = states
        m *= self.momentum
        m += g + weight_decay * p
        p -= lr * np.sign(m)


@dataclass(frozen=True)
class SignSgd(ElementwiseRule):
    """m = momentum m + g; p -= lr sign(m). Source: Bernstein et al. 2018, algorithm 1."""

    kind = "sign_sgd"
    momentum: Annotated[Share, "Share of the sum of gradients that is kept."] = 0.9

    def formula(self):
        return SignUpdate(self.momentum)
