"""Layers whose units the ranks of a training share out: each computes its own for every picture."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from ..common.errors import ShapeError
from ..common.options import Form, OptionError
from ..graph.graph import Graph, Tensor
from ..graph.ops import ExchangeUnits, ExchangeUnitsBackward, GatherRows, GatherRowsBackward
from .layer import Layer, Parameter

SelfT = TypeVar("SelfT", bound="Splittable")


SPACE = "space"


def _form(*ways: str) -> Form:
    expected = " or ".join(f"{{split: {way}}}" for way in ways)

    def read(value: Any) -> Any:
        if isinstance(value, dict) and value.keys() == {"split"} and value["split"] in ways:
            return value["split"]
        raise OptionError(f"expected {expected}", words=ways)

    kind = {"type": "object", "properties": {"split": {"enum": [*ways]}}, "required": ["split"]}
    return Form(read, lambda value: {"split": value}, {**kind, "additionalProperties": False})


SplitUnits = Annotated[str, _form("units")]
SplitFilters = Annotated[str, _form("filters", SPACE)]
SplitSpace = Annotated[str, _form(SPACE)]
PARALLEL = (
    "{split: %s}: with several ranks each has its share of the %s, and inputs and outputs are sent "
    "instead of gradients."
)
BY_SPACE = (
    "{split: space}: with several ranks each computes a band of rows of every picture, from the "
    "first layer to the last that says so."
)


class Splittable(Layer):
    """A layer whose outputs along axis 1 can be shared out: rank r computes the r-th share of them.

    On R ranks with N pictures each: gather the inputs of all, (R N, ...), compute the own units of
    them, (R N, U / R, ...), and exchange these for all units of the own pictures, (N, U, ...).
    Backward goes the other way: exchange dy, then the gradients of the own units, which are whole,
    and a dx of all pictures whose sum over the ranks each gets for its own. Source: Krizhevsky
    2014, "One weird trick for parallelizing convolutional neural networks".

    ``count`` is the option that says how many units there are; ``parallel`` is None, its name, or
    SPACE, which is the business of space.py.
    """

    count: ClassVar[str]
    if TYPE_CHECKING:
        # Every class declares it as its last option.
        parallel: str | None

    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(replace(p, split=self.parallel == self.count) for p in super().parameters())

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        share = self._share(graph)
        if share is None:
            return self.forward_units(graph, x)
        ranks = graph.ranks
        rows = graph.tensor(f"{self.name}.gathered", (ranks * x.shape[0], *x.shape[1:]))
        graph.add(GatherRows(x=x, y=rows, ranks=ranks))
        units = share.forward_units(graph, rows)
        y = graph.tensor(f"{self.name}.exchanged", (x.shape[0], *self.output_shape))
        return graph.add(ExchangeUnits(x=units, y=y, ranks=ranks))

    def backward(self, graph: Graph, dy: Tensor) -> Tensor:
        share = self._share(graph)
        if share is None:
            return self.backward_units(graph, dy)
        ranks, n = graph.ranks, dy.shape[0]
        units = graph.tensor(f"{self.name}.dy", (ranks * n, *share.output_shape))
        graph.add(ExchangeUnitsBackward(dy=dy, dx=units, ranks=ranks))
        rows = share.backward_units(graph, units)
        dx = graph.tensor(f"{self.name}.summed_dx", (n, *self.input_shape))
        return graph.add(GatherRowsBackward(dy=rows, dx=dx, ranks=ranks))

    @abstractmethod
    def forward_units(self, graph: Graph, x: Tensor) -> Tensor:
        """``forward`` of all units."""

    @abstractmethod
    def backward_units(self, graph: Graph, dy: Tensor) -> Tensor:
        """``backward`` of all units."""

    def check_split(self, ranks: int) -> None:
        """Raise ShapeError if the units cannot be shared out over so many ranks."""
        units = getattr(self, self.count)
        if self.parallel == self.count and units % ranks:
            fitting = [n for n in range(2, min(units, 64) + 1) if units % n == 0]
            raise ShapeError(
                f"layer '{self.name}' ({self.kind}): its {units} {self.count} cannot be shared out "
                f"evenly over {ranks} ranks; {_advice(self.count, fitting)}"
            )

    def _share(self: SelfT, graph: Graph) -> SelfT | None:
        """The layer of this rank's units; None if one rank computes all."""
        if self.parallel != self.count or graph.ranks == 1:
            return None
        self.check_split(graph.ranks)
        units = getattr(self, self.count) // graph.ranks
        return replace(self, **{self.count: units, "parallel": None})


def _advice(count: str, fitting: list[int]) -> str:
    shown = ", ".join(map(str, fitting[:8]))
    other = f"use {shown} ranks, " if fitting else ""
    return f"{other}another number of {count}, or leave out its 'parallel'"
