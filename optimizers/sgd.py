"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from ..common.options import Check, OptionError, Share
from ..common.records import dataclass
from ..graph.ops import SgdUpdate
from .rules import Decaying, Member


def _with_momentum(nesterov: bool, others: Mapping[str, Any]) -> None:
    if nesterov and others.get("momentum") == 0:
        raise OptionError("nesterov needs a momentum above 0, such as 0.9")


@dataclass(frozen=True)
class Sgd(Decaying):
    """Stochastic gradient descent as in PyTorch: buf = momentum * buf + g; p -= lr * buf."""

    kind = "sgd"
    operation = SgdUpdate
    momentum: Annotated[Share, "Share of the last update's direction that is kept."] = 0.0
    nesterov: Annotated[
        bool, Check(_with_momentum), "Nesterov's momentum: p -= lr * (g + momentum * buf)."
    ] = False

    def families(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def fields(self, members: Sequence[Member]) -> dict[str, Any]:
        return {
            "buffers": self.states(members, "momentum") if self.momentum else (),
            "momentum": self.momentum,
            "nesterov": self.nesterov,
        }
