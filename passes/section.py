"""A section of training before the rule is in it: what is computed, and what is trained by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from ..common.records import dataclass
from ..graph.graph import Graph, Op, Tensor
from ..graph.ops import Advance
from ..layers.layer import Parameter
from ..optimizers import rules
from ..optimizers.groups import RATES, Assigned
from ..optimizers.rules import Rule


@dataclass(frozen=True)
class Member:
    """What a section trains: a parameter with its rule and group, by its gradient.

    ``owner``: the layer's parameter, which is another one where centroids are trained in its place.
    It is trained from step ``start`` up to ``stop``.
    """

    one: Assigned
    gradient: Tensor
    owner: Parameter
    start: int
    stop: float

    @property
    def tensor(self) -> Tensor:
        return self.one.parameter.tensor

    @property
    def is_own(self) -> bool:
        """Whether the layer's parameter itself is trained."""
        return self.tensor == self.owner.tensor


@dataclass(frozen=True)
class Section:
    """Operations in the order ``body``, ``before``, the updates of ``members``, ``after``.

    ``before`` is what happens to gradients, ``after`` to what was trained; those without an origin
    get that of the rule. ``step``: (1,) the counter, which advances at the end. ``results`` are
    those of the graph.
    """

    name: str
    batch_size: int
    body: tuple[Op, ...]
    step: Tensor
    results: Mapping[str, Tensor]
    rule: Rule
    total_steps: int
    members: tuple[Member, ...] = ()
    before: tuple[Op, ...] = ()
    after: tuple[Op, ...] = field(default=())

    def gradient(self, parameter: Tensor) -> Tensor:
        """The gradient of a parameter in this section."""
        return gradient_in(self.name, parameter)

    def table(self, name: str) -> Tensor:
        """A number for every step."""
        return Tensor(name, (self.total_steps,), "float32", "data")


def gradient_in(section: str, parameter: Tensor) -> Tensor:
    """The gradient of a parameter in a section."""
    return Tensor(f"{parameter.name}.grad", parameter.shape, "float32", "gradient", section)


def described(
    graph: Graph, rule: Rule, every: Iterable[Assigned], total_steps: int, steps_per_epoch: int
) -> Section:
    """The plain section: data, forward, loss and backward, and all that is trained at some time."""
    members = tuple(
        Member(one, graph.gradient(one.parameter.tensor), one.parameter, *span)
        for one in every
        for span in (one.group.span(steps_per_epoch),)
    )
    results, step = dict(graph.results), graph.results["step"]
    section = Section(
        graph.name, graph.batch_size, tuple(graph.ops), step, results, rule, total_steps, members
    )
    # The rate that is reported is read from the main table, even if no parameter uses it.
    return replace(section, results={**results, RATES: section.table(RATES)})


def within(section: Section, first_step: int) -> Section:
    """The stretch that begins with ``first_step``: only what is trained in it."""
    active = tuple(m for m in section.members if m.start <= first_step < m.stop)
    return replace(section, members=active)


def begun(section: Section, first_step: int) -> tuple[Tensor, ...]:
    """What is trained until this stretch ends: all other parameters keep every bit."""
    return tuple(m.owner.tensor for m in section.members if m.start <= first_step)


def side_by_side(section: Section, apart: frozenset[Tensor] = frozenset()) -> Section:
    """Members of one rule and one table lie together, those that ``apart`` owns behind others."""
    groups: dict[tuple[Rule, str], list[Member]] = {}
    for member in sorted(section.members, key=lambda m: m.owner.tensor in apart):
        groups.setdefault((member.one.rule, member.one.rates), []).append(member)
    return replace(section, members=tuple(m for group in groups.values() for m in group))


def lowered(section: Section) -> Graph:
    """The section as a list of operations, with the updates that the rules make of its members.

    What neither a result nor an update needs is left out.
    """
    graph = Graph(section.name, section.batch_size, training=True)
    graph.results = dict(section.results)
    groups: dict[tuple[Rule, str], list[Member]] = {}
    for member in section.members:
        groups.setdefault((member.one.rule, member.one.rates), []).append(member)
    with graph.at(section.rule.kind, "update"):
        add_all(graph, (*section.body, *section.before))
        for (rule, rates), members in groups.items():
            table = graph.results.setdefault(rates, section.table(rates))
            moved = [
                rules.Member(
                    m.one.parameter, m.gradient, m.one.lr_factor, m.one.weight_decay, m.start
                )
                for m in members
            ]
            rule.add(graph, moved, table, section.step)
        add_all(graph, section.after)
        graph.add(Advance(step=section.step))
    graph.prune()
    return graph


def add_all(graph: Graph, ops: Sequence[Op]) -> None:
    """Append operations to a graph."""
    for op in ops:
        graph.add(op)
