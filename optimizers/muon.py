"""Muon for the filters of convolutions, another rule for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any

from ..common.options import Count, NotNegative, Share
from ..common.records import dataclass
from ..graph.ops import MuonUpdate
from ..layers.layer import Parameter
from .rules import Decaying, Member, Rule


@dataclass(frozen=True)
class Muon(Rule):
    """Muon for the filters of convolutions; all other parameters follow the rule under rest.

    buf = momentum buf + g; u = g + momentum buf; p -= lr NS(u), which is u, as a matrix with one
    row per filter, with its singular values brought near 1. The rest is trained at ``rest_factor``
    times the rate; a table of rates in ``rest_tables`` has a second one with the rates of the rest.
    Source: Jordan 2024.
    """

    kind = "muon"
    operation = MuonUpdate
    needs_whole = True
    rest: Annotated[Decaying, "The rule for all parameters that are not filters."]
    momentum: Annotated[Share, "Share of the last update's direction that is kept."] = 0.95
    nesterov: Annotated[bool, "Nesterov's momentum: u = g + momentum * buf."] = True
    iterations: Annotated[Count, "Newton-Schulz iterations."] = 5
    rescale: Annotated[
        bool, "Scale each filter bank to the norm sqrt(filters) before its step."
    ] = False
    weight_decay: Annotated[
        NotNegative, "p -= lr * weight_decay * p before the update, for filters."
    ] = field(default=0.0, kw_only=True)
    rest_factor: float = 1.0
    rest_tables: frozenset[str] = frozenset()

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

    def fields(self, members: Sequence[Member]) -> dict[str, Any]:
        return {
            "buffers": self.states(members, "momentum"),
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "iterations": self.iterations,
            "rescale": self.rescale,
        }


def rest_table(table: str) -> str:
    """The table with the rates of the rest that belongs to a table for the filters."""
    return f"{table}.rest"


def _is_filter(parameter: Parameter) -> bool:
    return parameter.kind == "kernel" and len(parameter.tensor.shape) == 4
