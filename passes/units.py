"""Layers whose units the ranks of a training share out: each computes its own for every picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..common.errors import ConfigError, ShapeError
from ..graph.graph import Graph, Tensor
from ..graph.ops import ExchangeUnits, ExchangeUnitsBackward, GatherRows, GatherRowsBackward
from ..layers.composite import mapped, walk
from ..layers.layer import Layer, Parameter
from ..layers.parallel import SPACE
from ..optimizers.pruning import is_pruned
from ..optimizers.sharing import shared_parameter
from .section import Section


class Units(Layer):
    """What one of several ranks computes of a layer: rank r the r-th share of its units.

    On R ranks with N pictures each: gather the inputs of all, (R N, ...), compute the own units of
    them, (R N, U / R, ...), and exchange these for all units of the own pictures, (N, U, ...).
    Backward goes the other way: exchange dy, then the gradients of the own units, which are whole,
    and a dx of all pictures whose sum over the ranks each gets for its own. Source: Krizhevsky
    2014, "One weird trick for parallelizing convolutional neural networks".
    """

    kind = "units"
    named = False
    layer: Layer
    ranks: int

    def build(self) -> None:
        self.output_shape = self.layer.output_shape
        own: Any = {count_of(self.layer): self.output_shape[0] // self.ranks}
        self.inner = replace(self.layer, **own)
        self.inner.frozen = self.layer.frozen

    def parameters(self) -> tuple[Parameter, ...]:
        return self.inner.parameters()

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        rows = graph.tensor(f"{self.name}.gathered", (self.ranks * x.shape[0], *x.shape[1:]))
        graph.add(GatherRows(x=x, y=rows, ranks=self.ranks))
        units = self.inner.forward(graph, rows)
        y = graph.tensor(f"{self.name}.exchanged", (x.shape[0], *self.output_shape))
        return graph.add(ExchangeUnits(x=units, y=y, ranks=self.ranks))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        n = dy.shape[0]
        units = graph.tensor(f"{self.name}.dy", (self.ranks * n, *self.inner.output_shape))
        graph.add(ExchangeUnitsBackward(dy=dy, dx=units, ranks=self.ranks))
        rows = self.inner.backward(graph, units)
        dx = graph.tensor(f"{self.name}.summed_dx", (n, *self.input_shape))
        return graph.add(GatherRowsBackward(dy=rows, dx=dx, ranks=self.ranks))


def over_units(layers: Sequence[Layer], ranks: int) -> tuple[Layer, ...]:
    """The layers as one of so many ranks computes them; ``check_units`` comes before."""

    def own(layer: Layer) -> Layer:
        if not count_of(layer):
            return layer
        return Units(name=layer.name, input_shape=layer.input_shape, layer=layer, ranks=ranks)

    return mapped(layers, own)


def parameters_of(kind: type[Layer], layers: Sequence[Layer]) -> frozenset[Tensor]:
    """The parameters of all layers of a kind: of Units those of which ranks have their own rows."""
    every = (layer for layer in walk(layers) if isinstance(layer, kind))
    return frozenset(p.tensor for layer in every for p in layer.parameters())


def count_of(layer: Layer) -> str:
    """The option that says how many units a layer has, if ranks share these out, else ""."""
    return "" if layer.parallel in (None, SPACE) else str(layer.parallel)


def check_units(layers: Sequence[Layer], ranks: int) -> None:
    """Raise ShapeError if the units of a layer cannot be shared out over so many ranks."""
    for layer in filter(count_of, walk(layers)):
        units, count = layer.output_shape[0], count_of(layer)
        if units % ranks:
            fitting = [n for n in range(2, min(units, 64) + 1) if units % n == 0]
            raise ShapeError(
                f"layer '{layer.name}' ({layer.kind}): its {units} {count} cannot be shared out "
                f"evenly over {ranks} ranks; {_advice(count, fitting)}"
            )


def check_members(
    section: Section, split: frozenset[Tensor], pruned: Sequence[str], shared: Mapping[str, int]
) -> None:
    """Raise ConfigError for a split parameter that must be seen whole, to be trained."""
    for member in section.members:
        if member.owner.tensor not in split:
            continue
        layer, _, name = member.tensor.name.rpartition(".")
        why, advice = "", ""
        if is_pruned(member.owner, pruned):
            why = f"its {name} is pruned"
        elif shared_parameter(member.owner, shared) is not None:
            why = f"its {name} is shared"
        elif member.one.rule.needs_whole:
            why = f"{member.one.rule.kind} updates its {name} as a whole"
            advice = ", or use another optimizer"
        if why:
            raise ConfigError(
                f"layer '{layer}': {why}, so ranks cannot share it out; leave out 'parallel' of "
                f"this layer{advice}"
            )


def _advice(count: str, fitting: list[int]) -> str:
    shown = ", ".join(map(str, fitting[:8]))
    other = f"use {shown} ranks, " if fitting else ""
    return f"{other}another number of {count}, or leave out its 'parallel'"
