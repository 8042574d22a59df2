"""The sections of a config's training, composed here alone: the plain step and what a run adds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import ceil

import numpy as np

from ..backends.base import Executable
from ..common.records import dataclass
from ..configs import RunConfig
from ..datasets import DatasetInfo, evaluation_order
from ..graph.augmentations import Augmentation
from ..graph.graph import Graph, Tensor
from ..layers.layer import Layer, Parameter
from ..optimizers.groups import Group, assign, stretches
from ..optimizers.rules import Rule
from ..passes.average import KINDS, averaged, evaluated
from ..passes.bands import Band, check_layers, in_bands, stretch
from ..passes.clip import clipped
from ..passes.parts import SUM, in_parts, statistics_moved
from ..passes.prune import masked
from ..passes.ranks import added_up, in_pieces, over_ranks
from ..passes.recompute import recomputed
from ..passes.section import Section, begun, described, lowered, side_by_side, within
from ..passes.share import shared
from ..passes.units import Units, check_members, over_units, parameters_of
from .assemble import groups_of, rule_of
from .augmentation import augmentations, views_of
from .network import Network
from .plan import Plan, make_plan, swa_steps
from .preprocessing import Preprocessing
from .renewal import RENEW, Renewal, make_renewal
from .share import ALONE, RankShare, check_ranks
from .splits import foreseen

SOURCE = "train"


@dataclass(frozen=True)
class Composition:
    """A rule with groups of parameters, and what a run adds to the plain step.

    ``averages``: their kinds. ``pruned``: globs of the parameters that have masks, ``shared``:
    bits, by globs of the parameters whose weights share their values. ``parts``: in how many a
    batch is computed; ``ranks``: processes that share them out, ``bands``: those that share out the
    rows of pictures. ``buckets``: in how many pieces ranks add up their gradients. ``apart``: the
    update is done elsewhere, by a server. ``recompute``: backward computes activations again.
    ``layer_decay``: see ``assign``.
    """

    rule: Rule
    groups: tuple[Group, ...] = ()
    clip_norm: float | None = None
    averages: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    shared: Mapping[str, int] = field(default_factory=dict)
    parts: int = 1
    ranks: int = 1
    bands: int = 1
    buckets: int = 1
    apart: bool = False
    recompute: bool = False
    layer_decay: float | None = None

    def computed(self, network: Network) -> Network:
        """The network as one of the processes computes it."""
        if self.bands > 1:
            return network.computed_by(in_bands(network.layers, self.bands))
        if self.ranks > 1:
            return network.computed_by(over_units(network.layers, self.ranks))
        return network

    def plain(self, graph: Graph, parameters: Sequence[Parameter], *length: int) -> Section:
        """The plain section; ``length``: steps of the training and of an epoch.

        Raises ConfigError for a group without parameters.
        """
        found = assign(self.rule, self.groups, parameters, self.layer_decay)
        return described(graph, self.rule, found, *length)

    def composed(
        self, section: Section, name: str, layers: Sequence[Layer] = (), mean: bool = True
    ) -> tuple[Section | None, Section]:
        """The section of a part, None if it updates the parameters itself; the one that does.

        Averages and the rule are left to ``finished``. section: the plain one, of a part; ``name``:
        of the update; ``layers``: what computes them; mean: whether the loss is one over a batch.
        Raises ConfigError for what ranks cannot split.
        """
        split, train = parameters_of(Units, layers), None
        section = recomputed(section) if self.recompute else section
        check_members(section, split, self.pruned, self.shared)
        update = masked(shared(section, self.shared), self.pruned)
        if self.apart or self.parts > 1 or self.bands > 1:
            train, update = in_parts(update, name, self.parts, self.parts // self.ranks, mean)
        update = side_by_side(update, split)
        if train is not None:
            if self.bands > 1:
                update = added_up(update, parameters_of(Band, layers), self.bands)
            train, update = statistics_moved(train, update, self.parts)
        if train is not None and self.ranks > 1:
            alike = {m.owner.tensor for m in update.members} - split
            update = added_up(update, alike, self.ranks)
            train, update = over_ranks(train, update, self.parts, self.ranks)
            train, update = in_pieces(train, update, self.buckets)
        if self.clip_norm is not None:
            update = clipped(update, self.clip_norm, split, self.ranks)
        return train, update

    def finished(self, update: Section, values: Sequence[Tensor]) -> Graph:
        """The update with averages of ``values``, and the rule."""
        for kind in (kind for kind in KINDS if kind in self.averages):
            update = averaged(update, kind, values)
        return lowered(update)


def composition(config: RunConfig, pieces: int = 1) -> Composition:
    """What a config's training is composed of on one rank; the plan sets rates and decays."""
    chosen, wanted = config.optimizer, config.parallel and config.parallel.buckets
    return Composition(
        rule_of(config),
        groups_of(config),
        chosen.clip_norm,
        tuple(kind for kind in KINDS if getattr(chosen, kind) is not None),
        () if config.prune is None else config.prune.patterns,
        {} if config.share is None else config.share.bits,
        config.train.accumulate,
        buckets=wanted or pieces,
        apart=config.is_asynchronous,
        recompute=bool(config.train.recompute),
        layer_decay=chosen.layer_decay,
    )


@dataclass(frozen=True)
class Step:
    """A step of a training: of a network, on batches gathered from the data set ``source``.

    ``seed``: the key of random numbers, of ``augment`` and of layers such as dropout.
    """

    network: Network
    batch_size: int
    source: str
    count: int
    steps_per_epoch: int
    total_steps: int
    scaling: Preprocessing
    composition: Composition
    seed: int
    augment: Sequence[Augmentation] = ()

    def plain_graph(self, name: str, network: Network) -> Graph:
        """A part of the batch as the network computes it, without an update."""
        parts = self.composition.parts
        size, steps = self.batch_size // parts, self.steps_per_epoch * parts
        given = (self.source, self.count, steps, self.scaling, self.seed, self.augment)
        return network.plain_graph(name, size, *given)

    def composed(self, first: int = 0) -> tuple[Section | None, Section, tuple[Tensor, ...]]:
        """The sections of the stretch that begins with step ``first``, and what is averaged."""
        chosen, network = self.composition, self.composition.computed(self.network)
        suffix = f"-{first}" if first else ""
        graph = self.plain_graph(f"train{suffix}", network)
        plain = chosen.plain(graph, network.parameters(), self.total_steps, self.steps_per_epoch)
        mean = network.loss.reduction == "mean"
        found = chosen.composed(within(plain, first), f"update{suffix}", network.layers, mean)
        return (*found, (*begun(plain, first), *self.network.running()))

    def graphs(self, first: int) -> tuple[Graph, Graph | None]:
        """The sections of the stretch: of a part, and of the update if it is apart."""
        train, update, values = self.composed(first)
        graph = self.composition.finished(update, values)
        return (graph, None) if train is None else (lowered(train), graph)


def kept(
    chosen: Composition, parameters: Sequence[Parameter], statistics: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """``<family>/<tensor>``: state, masks, codes, centroids and averages.

    That is all that the update, on one rank, keeps of what is trained at some time.
    """
    graph = Graph("train", 1)
    graph.results["step"] = graph.tensor("step", (1,), "int64", "state")
    plain = chosen.plain(graph, parameters, 1, 1)
    _, update = replace(chosen, parts=1, apart=True).composed(plain, "update")
    ended = chosen.finished(update, (*begun(plain, sys.maxsize), *statistics))
    found = (t for t in ended.tensors() if t.role in ("parameter", "state"))
    return tuple(t for t in found if "/" in t.name and not t.name.startswith(f"{SUM}/"))


def saved_tensors(config: RunConfig, network: Network) -> tuple[Tensor, ...]:
    """What a checkpoint holds: what is learned, then the optimizer's state."""
    state = kept(composition(config), network.parameters(), network.running())
    return (*network.learned(), *state)


@dataclass(frozen=True)
class Sections:
    """The stretches of training, and the evaluation of the validation samples, if there are any.

    ``renewal``: what measures the statistics of batch norm for averaged weights, if that is done.
    """

    stretches: tuple[Stretch, ...]
    evaluate: Graph | None
    renewal: Renewal | None = None

    def graphs(self) -> dict[str, Graph]:
        """All that is compiled together, by name."""
        graphs = {graph.name: graph for stretch in self.stretches for graph in stretch.graphs()}
        if self.evaluate is not None:
            graphs[self.evaluate.name] = self.evaluate
        if self.renewal is not None:
            graphs[RENEW] = self.renewal.graph
        return graphs


def make_step(
    config: RunConfig,
    network: Network,
    scaling: Preprocessing,
    plan: Plan,
    count: int,
    ranks: int,
    pieces: int = 1,
) -> Step:
    """The step of a training on ``count`` samples.

    pieces: in how many ranks add up their gradients, unless the config says it. Raises ConfigError
    for ranks that cannot share out the parts of a batch, ShapeError if they cannot a layer.
    """
    check_layers(network.layers, ranks)
    bands = ranks if stretch(network.layers) else 1
    # Of bands every rank computes all parts.
    chosen = replace(composition(config, pieces), ranks=ranks // bands, bands=bands)
    check_ranks(chosen.parts, chosen.ranks)
    sizes = (plan.batch_size, SOURCE, count, plan.steps_per_epoch, plan.total_steps)
    augment = augmentations(config, network.input_shape)
    return Step(network, *sizes, scaling, chosen, config.seed, augment)


def make_sections(config: RunConfig, step: Step, plan: Plan, share: RankShare = ALONE) -> Sections:
    """The sections of a training, before rewrites.

    Raises ConfigError for a group of parameters that is never trained.
    """
    chosen = step.composition
    own = share if chosen.bands == 1 else ALONE
    length = step.steps_per_epoch, step.total_steps
    starts = stretches(chosen.groups, *length)
    found = tuple(Stretch(first, *step.graphs(first), chosen.parts, own) for first in starts)
    # By then all that is averaged has begun.
    averages = evaluated(found[-1].graphs())
    # Each rank measures and evaluates whole pictures.
    network, renewal = replace(chosen, bands=1).computed(step.network), None
    if config.optimizer.swa is not None:
        first, _ = swa_steps(config.optimizer.swa, step.steps_per_epoch)
        plain, passes = step.plain_graph(RENEW, network), step.steps_per_epoch * chosen.parts
        renewal = make_renewal(plain, averages, chosen.rule.kind, passes, first)
    batch = plan.evaluation_batch_size
    steps = len(evaluation_order(plan.validation, batch)) // batch
    if config.run.calls is not None:
        from ..backends.cuda.lecture import check

        check(graph for each in found for graph in each.graphs())
    if not steps:
        return Sections(found, None, renewal)
    views = views_of(config.evaluate.tta, config.evaluate.tta_share)
    pictures = (batch, step.source, step.count, steps, step.scaling, views)
    evaluate = network.evaluate_graph(*pictures).substituted(averages)
    return Sections(found, evaluate, renewal)


def expected_sections(
    config: RunConfig,
    network: Network,
    scaling: Preprocessing,
    info: DatasetInfo,
    share: RankShare = ALONE,
) -> Sections:
    """The sections of a training before the data set is read.

    If its size is not known, ``samples_needed`` is used, and an evaluation has a whole batch.
    Raises what ``make_plan``, ``make_step`` and ``make_sections`` raise.
    """
    if config.loss.class_weights is not None:
        # Which they are does not matter to what is computed.
        network.loss.class_weights = (1.0,) * network.classes
    count = samples_needed(config) if info.train_count is None else info.train_count
    parts = foreseen(config, info, count)
    plan = make_plan(config, count, parts=parts)
    if info.train_count is None:
        plan = replace(plan, evaluation_batch_size=config.data.evaluation_batch_size)
    step = make_step(config, network, scaling, plan, sum(map(len, parts)), share.ranks)
    return make_sections(config, step, plan, share)


def samples_needed(config: RunConfig) -> int:
    """The fewest samples that suffice for a batch and the validation samples."""
    batch, held = config.data.batch_size, config.data.validation
    if isinstance(held, float):
        return max(ceil(batch / (1.0 - held)), ceil(1.0 / held) if held else 0)
    return batch + held


@dataclass(frozen=True)
class Stretch:
    """The sections of each step from ``first`` until the next stretch begins.

    ``train`` runs once for each of the ``parts`` of a batch that are this process's ``share``. If
    there are several parts, ``update`` follows; otherwise it is None, and ``train`` updates the
    parameters itself.
    """

    first: int
    train: Graph
    update: Graph | None
    parts: int
    share: RankShare = ALONE

    @property
    def own(self) -> int:
        """The number of parts that this process computes."""
        return self.parts // self.share.ranks

    def graphs(self) -> tuple[Graph, ...]:
        return (self.train,) if self.update is None else (self.train, self.update)

    def runs(self) -> list[Graph]:
        """The sections of one step in order, repetitions included."""
        return [self.train] * self.own + ([] if self.update is None else [self.update])

    def run(self, executable: Executable, steps: int, wait: bool = True) -> None:
        """Run ``steps`` steps; see ``Executable.run`` for ``wait``."""
        if self.update is None:
            executable.run(self.train.name, steps, wait)
            return
        executable.run_in_turn([graph.name for graph in self.runs()], steps, wait)

    def go_to(self, executable: Executable, step: int) -> None:
        """Set the counters to ``step`` updates done."""
        done = np.array([step * self.parts + self.share.rank * self.own], np.int64)
        executable.write(self.train["step"], done)
        if self.update is not None:
            executable.write(self.update["update.step"], np.array([step], np.int64))


def stretch_at(stretches: Sequence[Stretch], step: int) -> tuple[Stretch, float]:
    """The stretch of a step, and the first step after it."""
    index = max(i for i, each in enumerate(stretches) if each.first <= step)
    following = stretches[index + 1].first if index + 1 < len(stretches) else float("inf")
    return stretches[index], following
