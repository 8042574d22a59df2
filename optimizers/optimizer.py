"""The update of all parameters: rules, groups, clipping, averages, sums over parts of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError
from ..common.records import dataclass
from ..graph.graph import Graph, Tensor
from ..graph.ops import (
    Accumulate,
    AllReduce,
    Average,
    ClipByNorm,
    GatherRows,
    GlobalNorm,
    JoinNorms,
    Mask,
    ShareWeights,
    SumShared,
)
from ..layers.layer import Parameter
from .groups import RATES, Assigned, Group, assign
from .pruning import MASK, is_pruned
from .rules import Member, Rule, state_of
from .sharing import code_of, moved, shared_parameter

EMA, LOOKAHEAD, SUM, SWA = "ema", "lookahead", "accumulated", "swa"


@dataclass(frozen=True)
class Optimizer:
    """A rule with groups, averages and parts of a batch; the plan sets rates and decays.

    ``ema`` keeps an average of what is learned, which evaluation then uses; so does ``swa``, an
    equal average of some steps; ``lookahead`` periodically replaces the parameters by another
    average. ``parts``: the number of parts in which a batch is computed; ``ranks``: the number of
    processes that share them out, ``bands``: of those that share out the rows of pictures.
    ``buckets``: in how many pieces they add up their gradients, if each computes one part; all but
    the last in the section of a part. ``apart``: the update is done elsewhere, by a server.
    ``pruned``: globs of the parameters that have masks, whose zeros are weights that stay 0.
    ``shared``: bits, by globs of the parameters whose weights share their values.
    """

    rule: Rule
    groups: tuple[Group, ...] = ()
    ema: bool = False
    lookahead: bool = False
    parts: int = 1
    ranks: int = 1
    bands: int = 1
    apart: bool = False
    buckets: int = 1
    pruned: tuple[str, ...] = ()
    shared: Mapping[str, int] = field(default_factory=dict)
    swa: bool = False

    @property
    def separate(self) -> bool:
        """Whether the update is a section of its own."""
        return self.apart or self.parts > 1 or self.bands > 1

    @property
    def name(self) -> str:
        return self.rule.kind

    @property
    def own_parts(self) -> int:
        """How many parts of a batch each rank computes."""
        return self.parts // self.ranks

    @property
    def sums_early(self) -> bool:
        """Whether the section of a part begins to add up what ranks have computed."""
        return self.ranks > 1 and self.buckets > 1 and self.own_parts == 1

    def assigned(self, parameters: Sequence[Parameter]) -> tuple[Assigned, ...]:
        """The parameters that are trained at some time. Raises ConfigError for an empty group."""
        found = assign(self.rule, self.groups, parameters)
        return tuple(one for one in found if not one.group.frozen)

    def state(
        self, parameters: Sequence[Parameter], statistics: Sequence[Tensor] = ()
    ) -> tuple[Tensor, ...]:
        """The rules' state ``<family>/<parameter>``, masks, codes and centroids, averages."""
        kept = [
            state_of(one.parameter.tensor, family)
            for one in (moved(each, self.rule, self.shared) for each in self.assigned(parameters))
            for family in one.rule.families()
        ]
        shared = [tensor for pair in self.shares(parameters).values() for tensor in pair]
        averages = self.averages(parameters, statistics)
        return (*kept, *self.masks(parameters), *shared, *averages)

    def masks(self, parameters: Sequence[Parameter]) -> dict[Tensor, Tensor]:
        """The mask of every pruned parameter that is trained, unless its codes say it."""
        shared = self.shares(parameters)
        every = (one.parameter for one in self.assigned(parameters))
        pruned = [p.tensor for p in every if is_pruned(p, self.pruned) and p.tensor not in shared]
        return {state_of(tensor, MASK): tensor for tensor in pruned}

    def shares(self, parameters: Sequence[Parameter]) -> dict[Tensor, tuple[Tensor, Tensor]]:
        """The codes and centroids of every trained parameter whose weights share their values."""
        every = [one.parameter for one in self.assigned(parameters)]
        pairs = [(one.tensor, shared_parameter(one, self.shared)) for one in every]
        return {t: (code_of(t), own.tensor) for t, own in pairs if own is not None}

    def averages(
        self, parameters: Sequence[Parameter], statistics: Sequence[Tensor] = ()
    ) -> dict[Tensor, Tensor]:
        """Every average, with the tensor that it averages: all that training changes."""
        values = (*(one.parameter.tensor for one in self.assigned(parameters)), *statistics)
        return {state_of(value, kind): value for kind in self._kinds() for value in values}

    def _kinds(self) -> list[str]:
        """The kinds of averages that are kept."""
        kinds = ((LOOKAHEAD, self.lookahead), (EMA, self.ema), (SWA, self.swa))
        return [kind for kind, on in kinds if on]

    def evaluation_averages(
        self, parameters: Sequence[Parameter], statistics: Sequence[Tensor]
    ) -> dict[Tensor, Tensor]:
        """What training changes, with the average that evaluation takes in its place."""
        averages = self.averages(parameters, statistics).items()
        return {v: a for a, v in averages if a.name.partition("/")[0] in (EMA, SWA)}

    def evaluated(
        self, graph: Graph, parameters: Sequence[Parameter], statistics: Sequence[Tensor]
    ) -> Graph:
        """The section with averages in place of the trained weights, if averages are kept."""
        return graph.substituted(self.evaluation_averages(parameters, statistics))

    def stretches(
        self, parameters: Sequence[Parameter], steps_per_epoch: int, total_steps: int
    ) -> tuple[int, ...]:
        """The first steps of the stretches of training in which the same parameters are trained.

        Raises ConfigError for a group that is never trained although it is not frozen.
        """
        begins = {0}
        for index, group in enumerate(self.groups):
            start, stop = group.span(steps_per_epoch)
            if start >= total_steps:
                raise ConfigError(
                    f"optimizer.groups.{index}.freeze_until_epoch: epoch {group.freeze_until:g} is "
                    f"never reached, training ends after {total_steps} steps ({steps_per_epoch} "
                    "steps per epoch); train longer, or set 'frozen: true'"
                )
            if start and start >= stop:
                raise ConfigError(
                    f"optimizer.groups.{index}.freeze_after_epoch: epochs {group.freeze_until:g} "
                    f"and {group.freeze_after:g} are both step {start}, so the group is never "
                    f"trained ({steps_per_epoch} steps per epoch); leave a step between them, or "
                    "set 'frozen: true'"
                )
            begins.update(int(step) for step in (start, stop) if step < total_steps)
        return tuple(sorted(begins))

    def update(
        self,
        graph: Graph,
        parameters: Sequence[Parameter],
        statistics: Sequence[Tensor],
        step: Tensor,
        total_steps: int,
        steps_per_epoch: int,
        first_step: int,
    ) -> None:
        """Add the update of the stretch that begins with ``first_step``.

        step: (1,) the step to take now. Results: the tables of rates and ``<average>.decays``.
        """
        spans = [(one, one.group.span(steps_per_epoch)) for one in self.assigned(parameters)]
        groups: dict[tuple[Rule, str], list[tuple[Tensor, Assigned, int]]] = {}
        # What all ranks sum up lies side by side.
        for each, (start, stop) in sorted(spans, key=lambda span: self._is_split(span[0])):
            if start <= first_step < stop:
                self._check_split(each)
                one = moved(each, self.rule, self.shared)
                place = groups.setdefault((one.rule, one.rates), [])
                place.append((each.parameter.tensor, one, start))
        weights = [weight for group in groups.values() for weight, _, _ in group]
        gradients = {
            weight: state_of(weight, SUM) if self.separate else graph.gradient(weight)
            for weight in weights
        }
        # Of what ranks have split, each has the gradient of the whole batch.
        split = {one.parameter.tensor for one, _ in spans if self._is_split(one)}
        alike = tuple(gradients[weight] for weight in weights if weight not in split)
        if self.ranks > 1 and alike:
            trained = self._trained(parameters, steps_per_epoch, first_step)
            early = {state_of(one, SUM) for piece in self._early(trained) for one in piece}
            late = tuple(gradient for gradient in alike if gradient not in early)
            graph.add(AllReduce(values=late, ranks=self.ranks))
        banded = {one.parameter.tensor for one, _ in spans if one.parameter.banded}
        if self.bands > 1 and not banded.isdisjoint(weights):
            partial = tuple(gradients[weight] for weight in weights if weight in banded)
            graph.add(AllReduce(values=partial, ranks=self.bands))
        masks = {m: weight for m, weight in self.masks(parameters).items() if weight in gradients}
        if masks:
            masked = tuple(gradients[weight] for weight in masks.values())
            graph.add(Mask(masks=tuple(masks), values=masked))
        shares = {w: pair for w, pair in self.shares(parameters).items() if w in gradients}
        codes, centroids = (tuple(pair[i] for pair in shares.values()) for i in (0, 1))
        if shares:
            summed = tuple(gradients[weight] for weight in shares)
            sums = tuple(graph.gradient(each) for each in centroids)
            graph.add(SumShared(gradients=summed, codes=codes, sums=sums))
            gradients |= dict(zip(shares, sums, strict=True))

        def table(name: str) -> Tensor:
            """A number for every step."""
            graph.results[name] = graph.tensor(name, (total_steps,), "float32", "data")
            return graph.results[name]

        # The rate that is reported is read from the main table, even if no parameter uses it.
        names = dict.fromkeys((RATES, *(rates for _, rates in groups)))
        tables = {name: table(name) for name in names}
        if self.rule.clip_norm is not None and weights:
            alike = tuple(gradients[weight] for weight in weights if weight not in split)
            apart = tuple(gradients[weight] for weight in weights if weight in split)
            norm, every = self._norm(graph, alike, apart), tuple(gradients.values())
            graph.add(ClipByNorm(norm=norm, gradients=every, max_norm=self.rule.clip_norm))
        for (rule, rates), group in groups.items():
            members = [
                Member(one.parameter, gradients[weight], one.lr_factor, one.weight_decay, start)
                for weight, one, start in group
            ]
            rule.add(graph, members, tables[rates], step)
        if masks:
            graph.add(Mask(masks=tuple(masks), values=tuple(masks.values())))
        if shares:
            graph.add(ShareWeights(codes=codes, centroids=centroids, parameters=tuple(shares)))
        # Parameters that have not begun to train keep every bit.
        begun = {one.parameter.tensor for one, (start, _) in spans if start <= first_step}
        values = (*(p.tensor for p in parameters if p.tensor in begun), *statistics)
        for kind in self._kinds() if values else ():
            graph.add(
                Average(
                    decays=table(f"{kind}.decays"),
                    step=step,
                    averages=tuple(state_of(value, kind) for value in values),
                    values=values,
                    pull=kind == LOOKAHEAD,
                )
            )

    def _is_split(self, one: Assigned) -> bool:
        return self.ranks > 1 and one.parameter.split

    def _check_split(self, one: Assigned) -> None:
        """Raise ConfigError for a parameter that its rule must see whole."""
        if not self._is_split(one):
            return
        layer, _, name = one.parameter.tensor.name.rpartition(".")
        pruned = is_pruned(one.parameter, self.pruned)
        if pruned or shared_parameter(one.parameter, self.shared) is not None:
            raise ConfigError(
                f"layer '{layer}': its {name} is {'pruned' if pruned else 'shared'}, so ranks "
                "cannot share it out; leave out 'parallel' of this layer"
            )
        if one.rule.needs_whole:
            raise ConfigError(
                f"layer '{layer}': {one.rule.kind} updates its {name} as a whole, so ranks cannot "
                "share it out; leave out 'parallel' of this layer, or use another optimizer"
            )

    def _norm(self, graph: Graph, alike: tuple[Tensor, ...], apart: tuple[Tensor, ...]) -> Tensor:
        """The norm of all gradients; apart: those of which every rank has others."""
        norm = graph.tensor("gradient_norm", (1,))
        if not apart:
            graph.add(GlobalNorm(gradients=alike, norm=norm))
            return norm
        own = graph.tensor("gradient_norm.own", (1,))
        norms = graph.tensor("gradient_norm.ranks", (self.ranks,))
        graph.add(GlobalNorm(gradients=apart, norm=own))
        graph.add(GatherRows(x=own, y=norms, ranks=self.ranks))
        common = None
        if alike:
            common = graph.tensor("gradient_norm.common", (1,))
            graph.add(GlobalNorm(gradients=alike, norm=common))
        return graph.add(JoinNorms(norms=norms, own=common, norm=norm))

    def sum_up(
        self,
        graph: Graph,
        parameters: Sequence[Parameter],
        steps_per_epoch: int,
        first_step: int,
        scale: float,
    ) -> None:
        """Add the gradients of a part of the batch to their sums, in steps that count parts."""
        trained = self._trained(parameters, steps_per_epoch, first_step)
        if trained:
            parts = self.own_parts
            further = [f"{SUM}.{level}" for level in range(1, Accumulate.levels(parts))]
            tensors = [parameter.tensor for parameter in trained]
            graph.add(
                Accumulate(
                    gradients=tuple(graph.gradient(tensor) for tensor in tensors),
                    step=graph["step"],
                    sums=tuple(state_of(tensor, SUM) for tensor in tensors),
                    pending=tuple(state_of(tensor, f) for f in further for tensor in tensors),
                    parts=parts,
                    scale=scale,
                )
            )
        for piece in self._early(trained):
            sums = tuple(state_of(tensor, SUM) for tensor in piece)
            graph.add(AllReduce(values=sums, ranks=self.ranks))

    def _trained(
        self, parameters: Sequence[Parameter], steps_per_epoch: int, first_step: int
    ) -> list[Parameter]:
        """What is trained in the stretch that begins with ``first_step``."""
        spans = [(one, one.group.span(steps_per_epoch)) for one in self.assigned(parameters)]
        return [one.parameter for one, (a, b) in spans if a <= first_step < b]

    def _early(self, trained: Sequence[Parameter]) -> list[list[Tensor]]:
        """What is added up in the section of a part: pieces of about equal size, the first of those
        whose gradients come first, which are the last. One more is left to the update."""
        alike = [one.tensor for one in trained if not one.split]
        if not self.sums_early or not alike:
            return []
        whole, done, found = sum(tensor.size for tensor in alike), 0, [[alike[-1]]]
        for tensor in reversed(alike[:-1]):
            done += found[-1][0].size
            if done * self.buckets >= whole * len(found) and len(found) < self.buckets:
                found.append([])
            found[-1].insert(0, tensor)
        return found[:-1]


def as_optimizer(given: Optimizer | Rule) -> Optimizer:
    """A rule alone treats all parameters alike."""
    return given if isinstance(given, Optimizer) else Optimizer(given)


def swa_decays(start: int, every: int, total_steps: int) -> NDArray[np.float32]:
    """The decay of every step: (total_steps,) float32; -1 if the average stays the same.

    After step ``start`` and every ``every`` steps from there on, it is n / (n + 1), n being the
    number of steps that are in the average already; before, it is 0: the average is the weights.
    Source: Izmailov et al. 2018, algorithm 1.
    """
    since = np.arange(1, total_steps + 1) - start
    count = since.clip(0) // every
    decays = np.where(since % every == 0, count / (count + 1.0), -1.0)
    decays[since < 0] = 0.0
    return decays.astype(np.float32)


def lookahead_decays(
    every: int, decay: float, power: float, total_steps: int
) -> NDArray[np.float32]:
    """The decay of every step: (total_steps,) float32; -1 if the slow weights stay the same.

    After step t, a multiple of ``every``, it is decay^every (t / T)^power. After the last step,
    unless that is such a multiple, it is 1: the weights become the slow ones.
    """
    t = np.arange(1, total_steps + 1, dtype=np.float64)
    decays = decay**every * (t / total_steps) ** power
    decays[t % every != 0] = -1.0
    if decays[-1] < 0:
        decays[-1] = 1.0
    return decays.astype(np.float32)
