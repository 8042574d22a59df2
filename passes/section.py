"""A section of training before the rule is in it: what is computed, and what is trained by that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

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
    after: tuple[Op, ...] = ()

    def table(self, name: str) -> Tensor:
        """A number for every step."""
        return Tensor(name, (self.total_steps,), "float32", "data")

    def groups(self) -> dict[tuple[Rule, str], list[Member]]:
        """The members of each rule and table of rates, in the order of the first of each."""
        found: dict[tuple[Rule, str], list[Member]] = {}
        for member in self.members:
            found.setdefault((member.one.rule, member.one.rates), []).append(member)
        return found


def described(
    graph: Graph, rule: Rule, every: Iterable[Assigned], total_steps: int, steps_per_epoch: int
) -> Section:
    """The plain section: data, forward, loss and backward, and all that is trained at some time."""
    spans = ((one, one.parameter, one.group.span(steps_per_epoch)) for one in every)
    members = tuple(Member(one, graph.gradient(p.tensor), p, *span) for one, p, span in spans)
    frame = (graph.name, graph.batch_size, tuple(graph.ops), graph["step"], graph.results)
    section = Section(*frame, rule, total_steps, members)
    # The rate that is reported is read from the main table, even if no parameter uses it.
    return replace(section, results={**graph.results, RATES: section.table(RATES)})


def within(section: Section, first_step: int) -> Section:
    """The stretch that begins with ``first_step``: only what is trained in it."""
    active = tuple(m for m in section.members if m.start <= first_step < m.stop)
    return replace(section, members=active)


def begun(section: Section, first_step: int) -> tuple[Tensor, ...]:
    """What is trained until this stretch ends: all other parameters keep every bit."""
    return tuple(m.owner.tensor for m in section.members if m.start <= first_step)


def side_by_side(section: Section, apart: frozenset[Tensor] = frozenset()) -> Section:
    """Members of one rule and one table lie together, those that ``apart`` owns behind others."""
    ordered = sorted(section.members, key=lambda m: m.owner.tensor in apart)
    groups = replace(section, members=tuple(ordered)).groups().values()
    return replace(section, members=tuple(m for group in groups for m in group))


def lowered(section: Section) -> Graph:
    """The section as a list of operations, with the updates that the rules make of its members.

    What neither a result nor an update needs is left out.
    """
    graph = Graph(section.name, section.batch_size, training=True)
    graph.results = dict(section.results)
    with graph.at(section.rule.kind, "update"):
        for op in (*section.body, *section.before):
            graph.add(op)
        for (rule, rates), group in section.groups().items():
            table = graph.results.setdefault(rates, section.table(rates))
            moved = (
                (m.one.parameter, m.gradient, m.one.lr_factor, m.one.weight_decay, m.start)
                for m in group
            )
            rule.add(graph, [rules.Member(*each) for each in moved], table, section.step)
        for op in (*section.after, Advance(step=section.step)):
            graph.add(op)
    graph.prune()
    return graph
