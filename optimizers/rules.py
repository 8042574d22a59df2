"""What the update rules share: the parameters under a rule, and the operations that it adds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from ..common.options import NotNegative
from ..common.records import dataclass
from ..graph.graph import Graph, Tensor
from ..graph.ops import ElementwiseUpdate, UpdateFormula
from ..graph.ops.updates import ParameterUpdate
from ..layers.layer import Parameter

DecayOn = Literal["all", "weights"]


@dataclass(frozen=True)
class Member:
    """A parameter under a rule; ``start`` is the step of its first update."""

    parameter: Parameter
    gradient: Tensor
    lr_factor: float
    weight_decay: float
    start: int

    @property
    def tensor(self) -> Tensor:
        return self.parameter.tensor


@dataclass(frozen=True, kw_only=True)
class Rule(ABC):
    """How a gradient moves a parameter.

    ``weight_decay_on``: "weights" lets only kernels decay. One that ``needs_whole`` parameters
    cannot update the rows that one of several ranks has.
    """

    kind: ClassVar[str]
    operation: ClassVar[type[ParameterUpdate]]
    needs_whole: ClassVar[bool] = False
    weight_decay: float = 0.0
    weight_decay_on: DecayOn = "all"

    @abstractmethod
    def families(self) -> tuple[str, ...]:
        """The state is one tensor ``<family>/<parameter>`` for each of these."""

    @abstractmethod
    def fields(self, members: Sequence[Member]) -> dict[str, Any]:
        """What its ``operation`` needs beside what every update has."""

    def add(self, graph: Graph, members: Sequence[Member], rates: Tensor, step: Tensor) -> None:
        """Add the update of these parameters; rates: (steps,), step: (1,) the step to take now."""
        factors = tuple(m.lr_factor for m in members)
        graph.add(
            self.operation(
                gradients=tuple(m.gradient for m in members),
                rates=rates,
                step=step,
                parameters=tuple(m.tensor for m in members),
                weight_decay=tuple(m.weight_decay for m in members),
                lr_factor=() if set(factors) <= {1.0} else factors,
                **self.fields(members),
            )
        )

    def rule_of(self, parameter: Parameter) -> Rule:
        """The rule of a parameter: this one, unless it leaves the parameter to another."""
        return self

    def rate_of(self, parameter: Parameter, table: str) -> tuple[str, float]:
        """A table, and the multiple of its rates that is the parameter's rate.

        table: the rates of the schedule that the parameter follows, from the optimizer's lr.
        """
        return table, 1.0

    def decay_of(self, parameter: Parameter) -> float:
        """The weight decay of a parameter, unless a group sets another."""
        decayed = self.weight_decay_on == "all" or parameter.kind == "kernel"
        return self.weight_decay if decayed else 0.0

    def states(self, members: Sequence[Member], family: str) -> tuple[Tensor, ...]:
        """The state tensors of a family, one per member."""
        return tuple(state_of(member.tensor, family) for member in members)


@dataclass(frozen=True, kw_only=True)
class Decaying(Rule):
    """A rule that adds the decay to the gradient; the ``rest`` of Muon can be such a rule."""

    weight_decay: Annotated[
        NotNegative, "g += weight_decay * p before the momentum (L2 regularisation)."
    ] = 0.0
    weight_decay_on: Annotated[
        DecayOn, "Parameters that decay: all, or weights alone (no biases)."
    ] = "all"


@dataclass(frozen=True, kw_only=True)
class ElementwiseRule(Decaying):
    """A rule that updates every number of a parameter independently, by its formula."""

    operation = ElementwiseUpdate

    @abstractmethod
    def formula(self) -> UpdateFormula:
        """The formula with the options of the rule."""

    def families(self) -> tuple[str, ...]:
        return self.formula().families

    def fields(self, members: Sequence[Member]) -> dict[str, Any]:
        return {
            "states": tuple(t for family in self.families() for t in self.states(members, family)),
            "start": tuple(m.start for m in members),
            "formula": self.formula(),
        }


def state_of(tensor: Tensor, family: str) -> Tensor:
    """The state ``<family>/<tensor>``, shared by all sections."""
    return Tensor(f"{family}/{tensor.name}", tensor.shape, "float32", "state")
