"""The sections of a config's training; every part of the program gets them from here."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from ..common.records import dataclass
from ..configs import RunConfig
from ..datasets import DatasetInfo, evaluation_order
from ..graph.graph import Graph
from .assemble import optimizer
from .augmentation import augmentations, views_of
from .network import Network
from .plan import Plan, make_plan, swa_steps
from .preprocessing import Preprocessing
from .renewal import RENEW, Renewal
from .share import ALONE, Share, check_ranks
from .stretches import Stretch, make_stretches

SOURCE = "train"


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
    network.check_ranks(share.ranks)
    bands = network.bands(share.ranks)
    if bands > 1:
        # Every rank computes all parts.
        share = ALONE
    wanted = None if config.parallel is None else config.parallel.buckets
    buckets = wanted or pieces
    rule = replace(optimizer(config), ranks=share.ranks, bands=bands, buckets=buckets)
    check_ranks(config.train.accumulate, share.ranks)
    parameters = network.parameters(share.ranks)
    augment = augmentations(config, network.input_shape)

    def train(first_step: int) -> Graph:
        return network.train_graph(
            plan.batch_size,
            SOURCE,
            count,
            plan.steps_per_epoch,
            plan.total_steps,
            scaling,
            rule,
            seed=config.seed,
            augment=augment,
            first_step=first_step,
        )

    def update(first_step: int, part: Graph) -> Graph:
        length = (plan.total_steps, plan.steps_per_epoch)
        return network.update_graph(rule, *length, first_step, part)

    firsts = rule.stretches(parameters, plan.steps_per_epoch, plan.total_steps)
    stretches = make_stretches(firsts, rule.parts, train, update, share)
    batch = plan.evaluation_batch_size
    steps = len(evaluation_order(plan.validation, batch)) // batch
    renewal = None
    if config.optimizer.swa is not None:
        size, passes = plan.batch_size // rule.parts, plan.steps_per_epoch * rule.parts
        pictures = (size, SOURCE, count, passes, scaling)
        first, _ = swa_steps(config.optimizer.swa, plan.steps_per_epoch)
        renewal = network.renewal(*pictures, rule, first, config.seed, augment)
    if not steps:
        return Sections(stretches, None, renewal)
    views = views_of(config.evaluate.tta, config.evaluate.tta_share)
    given = (batch, SOURCE, count, steps, scaling, views, share.ranks)
    evaluate = network.evaluate_graph(*given)
    evaluate = rule.evaluated(evaluate, parameters, network.running())
    return Sections(stretches, evaluate, renewal)


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
