"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar

from ..common.options import Form, NotNegative, OptionError, Positive, Share
from ..common.records import dataclass
from ..graph.ops import AdamUpdate
from .rules import Decaying, Member


def _two(value: Any) -> Any:
    if isinstance(value, list) and len(value) != 2:
        raise OptionError("expected two numbers, such as [0.9, 0.999]")
    return tuple(value) if isinstance(value, list) else value


TWO = Form(_two, list)


@dataclass(frozen=True)
class Adam(Decaying):
    """Adam as in PyTorch; weight decay is added to the gradient.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2;
    p -= lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps). Source: Kingma and Ba 2015.
    """

    kind = "adam"
    operation = AdamUpdate
    decoupled: ClassVar[bool] = False
    betas: Annotated[
        tuple[Share, Share], TWO, "Shares of the running averages of g and g**2 that are kept."
    ] = (0.9, 0.999)
    eps: Annotated[Positive, "Added to the square root in the denominator."] = 1e-8

    def families(self) -> tuple[str, ...]:
        return ("adam_m", "adam_v")

    def fields(self, members: Sequence[Member]) -> dict[str, Any]:
        return {
            "means": self.states(members, "adam_m"),
            "squares": self.states(members, "adam_v"),
            "start": tuple(m.start for m in members),
            "beta1": self.betas[0],
            "beta2": self.betas[1],
            "eps": self.eps,
            "decoupled": self.decoupled,
        }


@dataclass(frozen=True)
class Adamw(Adam):
    """Adam with decoupled weight decay: p -= lr * weight_decay * p, then Adam's step.

    Source: Loshchilov and Hutter 2019.
    """

    kind = "adamw"
    decoupled = True
    weight_decay: Annotated[NotNegative, "p -= lr * weight_decay * p before the update."] = field(
        default=0.01, kw_only=True
    )
