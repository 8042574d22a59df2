"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..graph.graph import Graph, Tensor
from ..graph.ops import AdamUpdate
from .rules import DecayOn, Member, Rule, factors


@dataclass(frozen=True)
class Adam(Rule):
    """Adam; with ``decoupled`` weight decay AdamW."""

    name: ClassVar[str] = "adam"
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    decoupled: bool = False
    weight_decay: float = 0.0
    weight_decay_on: DecayOn = "all"
    clip_norm: float | None = None

    def families(self) -> tuple[str, ...]:
        return ("adam_m", "adam_v")

    def add(self, graph: Graph, members: Sequence[Member], rates: Tensor, step: Tensor) -> None:
        graph.add(
            AdamUpdate(
                gradients=tuple(m.gradient for m in members),
                rates=rates,
                step=step,
                parameters=tuple(m.tensor for m in members),
                means=self.states(members, "adam_m"),
                squares=self.states(members, "adam_v"),
                weight_decay=tuple(m.weight_decay for m in members),
                lr_factor=factors(members),
                start=tuple(m.start for m in members),
                beta1=self.beta1,
                beta2=self.beta2,
                eps=self.eps,
                decoupled=self.decoupled,
            )
        )
