"""The sections of a config's training, composed here alone: the plain step and what a run adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import ceil

from ..common.records import dataclass
from ..configs import RunConfig
from ..datasets import DatasetInfo, evaluation_order
from ..graph.augmentations import Augmentation
from ..graph.graph import Graph, Tensor
from ..layers.layer import Layer, Parameter
from ..optimizers.groups import Assigned, Group, assign, stretches
from ..optimizers.rules import Rule
from ..passes.average import KINDS, averaged, in_evaluation
from ..passes.bands import banded_by, check_layers, in_bands, stretch
from ..passes.clip import clipped
from ..passes.parts import SUM, in_parts, statistics_moved
from ..passes.prune import masked
from ..passes.ranks import added_up, in_pieces, over_ranks
from ..passes.section import Section, begun, described, lowered, side_by_side, within
from ..passes.share import shared
from ..passes.units import check_members, over_units, split_by
from .assemble import groups_of, rule_of
from .augmentation import augmentations, views_of
from .network import Network
from .plan import Plan, make_plan, swa_steps
from .preprocessing import Preprocessing
from .renewal import RENEW, Renewal, make_renewal
from .share import ALONE, Share, check_ranks
from .stretches import Stretch

SOURCE = "train"


@dataclass(frozen=True)
class Composition:
    """A rule with groups of parameters, and what a run adds to the plain step.

    ``averages``: their kinds. ``pruned``: globs of the parameters that have masks, ``shared``:
    bits, by globs of the parameters whose weights share their values. ``parts``: in how many a
    batch is computed; ``ranks``: processes that share them out, ``bands``: those that share out the
    rows of pictures. ``buckets``: in how many pieces ranks add up their gradients. ``apart``: the
    update is done elsewhere, by a server.
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

    @property
    def is_separate(self) -> bool:
        """Whether the update is a section of its own."""
        return self.apart or self.parts > 1 or self.bands > 1

    def assigned(self, parameters: Sequence[Parameter]) -> tuple[Assigned, ...]:
        """The parameters that are trained at some time. Raises ConfigError for an empty group."""
        return assign(self.rule, self.groups, parameters)

    def layers_of(self, network: Network) -> tuple[Layer, ...]:
        """The layers as one of the processes computes them."""
        if self.bands > 1:
            return in_bands(network.layers, self.bands)
        return over_units(network.layers, self.ranks) if self.ranks > 1 else network.layers

    def gathered(
        self, section: Section, name: str, layers: Sequence[Layer], mean: bool = True
    ) -> tuple[Section | None, Section]:
        """The section of a part, if the update is apart from it, and the update, called ``name``.

        section: the plain one, of a part; mean: whether the loss is one over a batch. ``finished``
        adds the rest to the update. Raises ConfigError for what ranks cannot split.
        """
        split = split_by(layers)
        check_members(section, split, self.pruned, self.shared)
        section = masked(shared(section, self.shared), self.pruned)
        if not self.is_separate:
            return None, side_by_side(section)
        train, update = in_parts(section, name, self.parts, mean)
        update = side_by_side(update, split)
        if self.bands > 1:
            update = added_up(update, banded_by(layers), self.bands)
        train, update = statistics_moved(train, update, self.parts)
        if self.ranks > 1:
            update = added_up(update, {m.owner.tensor for m in update.members} - split, self.ranks)
            train, update = over_ranks(train, update, self.parts, self.ranks)
            train, update = in_pieces(train, update, self.buckets)
        return train, update

    def finished(
        self, update: Section, values: Sequence[Tensor], split: frozenset[Tensor] = frozenset()
    ) -> Graph:
        """The update with clipping, averages of ``values``, and the rule."""
        if self.clip_norm is not None:
            update = clipped(update, self.clip_norm, split, self.ranks)
        for kind in KINDS:
            if kind in self.averages:
                update = averaged(update, kind, values)
        return lowered(update)


def composition(config: RunConfig) -> Composition:
    """What a config's training is composed of on one rank; the plan sets rates and decays."""
    chosen = config.optimizer
    return Composition(
        rule_of(config),
        groups_of(config),
        chosen.clip_norm,
        tuple(kind for kind in KINDS if getattr(chosen, kind) is not None),
        pruned=() if config.prune is None else config.prune.patterns,
        shared={} if config.share is None else config.share.bits,
        parts=config.train.accumulate,
        apart=config.is_asynchronous,
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
    seed: int = 0
    augment: Sequence[Augmentation] = ()

    def computed(self) -> Network:
        """The network as one of the processes computes it."""
        return self.network.computed_by(self.composition.layers_of(self.network))

    def plain_graph(self, name: str) -> Graph:
        """A part of the batch, without an update."""
        parts = self.composition.parts
        size, steps = self.batch_size // parts, self.steps_per_epoch * parts
        given = (self.source, self.count, steps, self.scaling, self.seed, self.augment)
        return self.computed().plain_graph(name, size, *given)

    def plain(self, first_step: int = 0) -> Section:
        """The plain section of the stretch that begins with ``first_step``; all are its members."""
        graph = self.plain_graph(section_name("train", first_step))
        every = self.composition.assigned(self.computed().parameters())
        return described(
            graph, self.composition.rule, every, self.total_steps, self.steps_per_epoch
        )

    def gathered(self, plain: Section, first_step: int = 0) -> tuple[Section | None, Section]:
        """See ``Composition.gathered``."""
        name, layers = section_name("update", first_step), self.computed().layers
        mean = self.network.loss.reduction == "mean"
        return self.composition.gathered(within(plain, first_step), name, layers, mean)

    def graphs(self, first_step: int = 0) -> tuple[Graph, Graph | None]:
        """The sections of the stretch: of a part, and of the update if it is apart."""
        plain = self.plain(first_step)
        train, update = self.gathered(plain, first_step)
        values = (*begun(plain, first_step), *self.network.running())
        graph = self.composition.finished(update, values, split_by(self.computed().layers))
        return (graph, None) if train is None else (lowered(train), graph)

    def averages(self) -> dict[Tensor, Tensor]:
        """What is trained, with the average that evaluation takes in its place."""
        every = self.composition.assigned(self.computed().parameters())
        values = (*(one.parameter.tensor for one in every), *self.network.running())
        return in_evaluation(self.composition.averages, values)


def section_name(kind: str, first_step: int) -> str:
    """The name of a training section in the stretch that begins with this step."""
    return kind if first_step == 0 else f"{kind}-{first_step}"


def whole_update(
    chosen: Composition, parameters: Sequence[Parameter], statistics: Sequence[Tensor]
) -> Graph:
    """The update, on one rank, of all that is trained at some time."""
    chosen = replace(chosen, parts=1, ranks=1, bands=1, apart=True)
    graph = Graph("train", 1)
    graph.results["step"] = graph.tensor("step", (1,), "int64", "state")
    plain = described(graph, chosen.rule, chosen.assigned(parameters), 1, 1)
    _, update = chosen.gathered(plain, "update", ())
    return chosen.finished(update, (*(m.owner.tensor for m in plain.members), *statistics))


def kept(update: Graph) -> tuple[Tensor, ...]:
    """What an update keeps, ``<family>/<tensor>``: state, masks, codes, centroids and averages."""
    found = (t for t in update.tensors() if t.role in ("parameter", "state"))
    return tuple(t for t in found if "/" in t.name and not t.name.startswith(f"{SUM}/"))


def saved_tensors(config: RunConfig, network: Network) -> tuple[Tensor, ...]:
    """What a checkpoint holds: what is learned, then what the update of all that keeps."""
    update = whole_update(composition(config), network.parameters(), network.running())
    return (*network.learned(), *kept(update))


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
    share: Share = ALONE,
    pieces: int = 1,
) -> Step:
    """The step of a training; see ``make_sections``."""
    check_layers(network.layers, share.ranks)
    chosen = replace(composition(config), ranks=share.ranks)
    if stretch(network.layers):
        # Every rank computes all parts.
        chosen = replace(chosen, ranks=1, bands=share.ranks)
    check_ranks(chosen.parts, chosen.ranks)
    wanted = None if config.parallel is None else config.parallel.buckets
    return Step(
        network,
        plan.batch_size,
        SOURCE,
        count,
        plan.steps_per_epoch,
        plan.total_steps,
        scaling,
        replace(chosen, buckets=wanted or pieces),
        config.seed,
        augmentations(config, network.input_shape),
    )


def make_sections(
    config: RunConfig,
    network: Network,
    scaling: Preprocessing,
    plan: Plan,
    count: int,
    share: Share = ALONE,
    pieces: int = 1,
) -> Sections:
    """The sections of a training on ``count`` samples, before rewrites.

    pieces: in how many ranks add up their gradients, unless the config says it.
    Raises ConfigError for a group of parameters that is never trained, and for a number of ranks
    that cannot share out the parts of a batch; ShapeError if they cannot share out a layer.
    """
    step = make_step(config, network, scaling, plan, count, share, pieces)
    chosen = step.composition
    own = share if chosen.bands == 1 else ALONE
    firsts = stretches(chosen.groups, plan.steps_per_epoch, plan.total_steps)
    found = tuple(Stretch(first, *step.graphs(first), chosen.parts, own) for first in firsts)
    averages = step.averages()
    renewal = None
    if config.optimizer.swa is not None:
        first, _ = swa_steps(config.optimizer.swa, plan.steps_per_epoch)
        alone = replace(step, composition=replace(chosen, bands=1))
        steps = plan.steps_per_epoch * chosen.parts
        renewal = make_renewal(alone.plain_graph(RENEW), averages, chosen.rule.kind, steps, first)
    batch = plan.evaluation_batch_size
    steps = len(evaluation_order(plan.validation, batch)) // batch
    if not steps:
        return Sections(found, None, renewal)
    views = views_of(config.evaluate.tta, config.evaluate.tta_share)
    # Each rank evaluates whole pictures.
    network = network.computed_by(replace(chosen, bands=1).layers_of(network))
    evaluate = network.evaluate_graph(batch, SOURCE, count, steps, scaling, views)
    return Sections(found, evaluate.substituted(averages), renewal)


def expected_sections(
    config: RunConfig,
    network: Network,
    scaling: Preprocessing,
    info: DatasetInfo,
    share: Share = ALONE,
) -> Sections:
    """The sections of a training before the data set is read.

    If its size is not known, ``samples_needed`` is used, and an evaluation has a whole batch.
    Raises what ``make_plan`` and ``make_sections`` raise.
    """
    if config.loss.class_weights is not None:
        # Which they are does not matter to what is computed.
        network.loss.class_weights = (1.0,) * network.classes
    if info.train_count is not None:
        count, plan = info.train_count, make_plan(config, info.train_count)
    else:
        count = samples_needed(config)
        whole = config.data.evaluation_batch_size
        plan = replace(make_plan(config, count), evaluation_batch_size=whole)
    return make_sections(config, network, scaling, plan, count, share)


def samples_needed(config: RunConfig) -> int:
    """The fewest samples that suffice for a batch and the validation samples."""
    batch, held = config.data.batch_size, config.data.validation
    if isinstance(held, float):
        return max(ceil(batch / (1.0 - held)), ceil(1.0 / held) if held else 0)
    return batch + held
