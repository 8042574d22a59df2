"""Muon for the filters of convolutions, another rule for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..graph.graph import Graph, Tensor
from ..graph.ops import MuonUpdate
from ..layers.layer import Parameter
from .rules import DecayOn, Member, Rule, factors


@dataclass(frozen=True)
class Muon(Rule):
    """Muon; what is no filter falls under ``rest``, at ``rest_factor`` times the rate.

    Beside a table of rates that is in ``rest_tables`` there is one with the rates of the rest.
    ``weight_decay`` is that of the filters; ``rest`` has its own.
    """

    name: ClassVar[str] = "muon"
    rest: Rule
    momentum: float = 0.95
    nesterov: bool = True
    iterations: int = 5
    rescale: bool = False
    rest_factor: float = 1.0
    rest_tables: frozenset[str] = frozenset()
    weight_decay: float = 0.0
    weight_decay_on: DecayOn = "all"
    clip_norm: float | None = None

    def families(self) -> tuple[str, ...]:
        return ("momentum",)

    def rule_of(self, parameter: Parameter) -> Rule:
        return self if _is_filter(parameter) else self.rest

    def rate_of(self, parameter: Parameter, table: str) -> tuple[str, float]:
        if _is_filter(parameter):
            return table, 1.0
        if table in self.rest_tables:
            return rest_table(table), 1.0
        return table, self.rest_factor

    def add(self, graph: Graph, members: Sequence[Member], rates: Tensor, step: Tensor) -> None:
        graph.add(
            MuonUpdate(
                gradients=tuple(m.gradient for m in members),
                rates=rates,
                step=step,
                parameters=tuple(m.tensor for m in members),
                buffers=self.states(members, "momentum"),
                weight_decay=tuple(m.weight_decay for m in members),
                lr_factor=factors(members),
                momentum=self.momentum,
                nesterov=self.nesterov,
                iterations=self.iterations,
                rescale=self.rescale,
            )
        )


def rest_table(table: str) -> str:
    """The table of the rest's rates beside that of the filters'."""
    return f"{table}.rest"


def _is_filter(parameter: Parameter) -> bool:
    return parameter.kind == "kernel" and len(parameter.tensor.shape) == 4
