"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..graph.graph import Graph, Tensor
from ..graph.ops import SgdUpdate
from .rules import DecayOn, Member, Rule, factors


@dataclass(frozen=True)
class Sgd(Rule):
    """SGD with momentum, Nesterov, weight decay and clipping by the global norm."""

    name: ClassVar[str] = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    weight_decay_on: DecayOn = "all"
    clip_norm: float | None = None

    def families(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def add(self, graph: Graph, members: Sequence[Member], rates: Tensor, step: Tensor) -> None:
        graph.add(
            SgdUpdate(
                gradients=tuple(m.gradient for m in members),
                rates=rates,
                step=step,
                parameters=tuple(m.tensor for m in members),
                buffers=self.states(members, "momentum") if self.momentum else (),
                weight_decay=tuple(m.weight_decay for m in members),
                lr_factor=factors(members),
                momentum=self.momentum,
                nesterov=self.nesterov,
            )
        )
