"""Sections of a step, for tests that need no config."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dnnstack.graph.graph import Graph, Tensor
from dnnstack.layers.layer import Parameter
from dnnstack.optimizers.groups import assign
from dnnstack.optimizers.rules import Rule, state_of
from dnnstack.passes.section import begun, within
from dnnstack.training.network import Network
from dnnstack.training.sections import Composition, Step


def step_of(network: Network, *given: Any, **more: Any) -> Step:
    """A step with the arguments of ``Step``; a rule alone treats all parameters alike."""
    *pictures, chosen = given
    composition = Composition(chosen) if isinstance(chosen, Rule) else chosen
    return Step(network, *pictures, composition, **{"seed": 0, **more})


def graphs(
    network: Network, *given: Any, first_step: int = 0, **more: Any
) -> tuple[Graph, Graph | None]:
    """The sections of a part and of the update, if it is apart."""
    return step_of(network, *given, **more).graphs(first_step)


def train_graph(network: Network, *given: Any, first_step: int = 0, **more: Any) -> Graph:
    """The first of these: without parts the whole step."""
    return graphs(network, *given, first_step=first_step, **more)[0]


def updated(
    graph: Graph, chosen: Composition, parameters: Sequence[Parameter], total: int, epoch: int = 1
) -> Callable[[int], Graph]:
    """The section with the update of the stretch that begins with a step."""
    plain = chosen.plain(graph, parameters, total, epoch)

    def of(first_step: int) -> Graph:
        _, update = chosen.composed(within(plain, first_step), "update")
        return chosen.finished(update, begun(plain, first_step))

    return of


def averages(
    chosen: Composition, parameters: Sequence[Parameter], statistics: Sequence[Tensor] = ()
) -> dict[Tensor, Tensor]:
    """Every average, with what it is an average of."""
    values = (
        *(one.parameter.tensor for one in assign(chosen.rule, chosen.groups, parameters)),
        *statistics,
    )
    return {state_of(value, kind): value for kind in chosen.averages for value in values}
