"""Setup: what is trained, on what, with which weights of classes; a session brings it there."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..common import random
from ..common.errors import ConfigError
from ..common.machine import available_threads
from ..common.records import dataclass
from ..common.targets import spread_of
from ..common.text import listed
from ..configs import RunConfig
from ..datasets import ImageSet
from ..graph.graph import Tensor
from ..layers.losses import LOSSES
from ..optimizers.pruning import MASK
from ..optimizers.sharing import CENTROIDS, CODE, cluster, shared_values
from ..passes.average import KINDS
from .assemble import pruned, shared_bits
from .network import FirstPictures, Network
from .own_samples import Chosen
from .plan import Plan
from .preprocessing import Prepared, Preprocessing
from .sections import Sections, Step, make_sections, make_step, saved_tensors
from .share import ALONE, RankShare
from .weights.start import Start
from .weights.teacher import check_scale, teach


@dataclass(frozen=True)
class Setup:
    """What is trained, and on what: all that a session needs but a device.

    ``scaling`` is how the pictures of ``data``, the training set, are preprocessed. ``start``: the
    first weights, as far as they are not initialised. ``share`` is what this process computes;
    ``chosen`` is how ``data`` were taken from the data set.
    """

    config: RunConfig
    network: Network
    scaling: Preprocessing
    plan: Plan
    data: ImageSet
    start: Start | None = None
    share: RankShare = ALONE
    chosen: Chosen | None = None

    def step(self, pieces: int = 1) -> Step:
        """See ``make_step``. Raises ConfigError, also for weights of classes that do not fit, and
        for a teacher that does not; see ``teach``."""
        if self.network.teacher is None:
            teach(self.config, self.network, self.data.classes)
        if self.network.teacher is not None:
            check_scale(self.network.teacher, self.scaling)
        self.network.loss.class_weights = class_weights(self.config, self.data, self.plan.train)
        given = (self.config, self.network, self.scaling, self.plan, len(self.data))
        return make_step(*given, self.share.ranks, pieces)

    def sections(self, pieces: int = 1) -> Sections:
        """See ``make_sections``; pieces: see ``make_step``."""
        return make_sections(self.config, self.step(pieces), self.plan, self.share)

    def fresh(self, pictures: FirstPictures | None = None) -> dict[str, NDArray[np.float32]]:
        """What a checkpoint holds, before the first step.

        Averages are equal to what they are of; the other state of the optimizer is zero. Weights
        that are pruned are 0, and so are their masks. ``pictures``: ``first_pictures``, or another.
        """
        network, config = self.network, self.config
        threads = config.run.threads or available_threads()
        pictures = pictures or self.first_pictures
        learned = network.initial_values(config.seed, pictures, threads)
        if self.start is not None:
            taken = self.start.values
            learned |= {t: taken[t.name] for t in network.learned() if t.name in taken}
        # Of parameters that are not trained, too.
        masks = {
            tensor: cut.mask(learned[tensor]) for tensor, cut in pruned(config, network).items()
        }
        learned |= {tensor: learned[tensor] * mask + 0 for tensor, mask in masks.items()}
        clustered = self._clustered(learned)
        learned |= {tensor: shared_values(*parts) for tensor, parts in clustered.items()}
        start = {tensor.name: values for tensor, values in learned.items()}
        start |= {f"{kind}/{name}": start[name] for kind in KINDS for name in tuple(start)}
        start |= {f"{MASK}/{tensor.name}": mask for tensor, mask in masks.items()}
        for tensor, parts in clustered.items():
            start |= zip(
                (f"{CODE}/{tensor.name}", f"{CENTROIDS}/{tensor.name}"), parts, strict=True
            )
        # What starts at nothing else starts at 0.
        saved = saved_tensors(config, network)
        return {t.name: start.get(t.name, np.zeros(t.shape, np.float32)) for t in saved}

    def _clustered(
        self, learned: Mapping[Tensor, NDArray[np.float32]]
    ) -> dict[Tensor, tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Codes and centroids of the parameters whose weights share their values."""
        config = self.config
        found = {}
        for tensor, bits in shared_bits(config, self.network).items():
            assert config.share is not None
            key = random.key(config.seed, "share", tensor.name)
            found[tensor] = cluster(learned[tensor], 1 << bits, config.share.start, key)
        return found

    def spread(self, samples: NDArray[np.int32]) -> float | None:
        """The variance of the targets of these samples, None where they are no numbers."""
        return spread_of(self.data.labels[samples]) if self.data.kind == "numbers" else None

    def first_pictures(self, count: int) -> Prepared:
        """The first pictures to train on, normalised."""
        return Prepared(self.data.images, self.plan.train[:count], self.scaling)


_KEY = "loss.class_weights"
_LISTED = 5


def class_weights(config: RunConfig, data: ImageSet, train: NDArray[np.int32]) -> tuple[float, ...]:
    """One weight for each class of ``data``, or () where none are asked for.

    train: indices of the samples to train on. ``balanced`` is N / (K n) for a class with n of the
    N samples, K being the classes that have any, so that the mean weight of a sample is 1; for a
    question, the number of times that the answer is no over that of yes. Raises ConfigError for
    numbers or names that do not fit the classes.
    """
    asked = config.loss.class_weights
    if asked is None:
        return ()
    if data.kind == "numbers":
        raise ConfigError(f"{_KEY}: the targets are numbers, which have no classes; remove it")
    if data.kind == "yes_no" and not LOSSES[config.loss.type].sigmoid:
        raise ConfigError(
            f"{_KEY}: '{config.loss.type}' does not weigh answers of yes; remove it, or use "
            "'binary_cross_entropy'"
        )
    names = data.classes
    if isinstance(asked, dict):
        if unknown := [name for name in asked if name not in names]:
            raise ConfigError(
                f"{_KEY}: the data has no class {listed(list(map(repr, unknown)), _LISTED)}; its "
                f"classes are {listed(names, _LISTED)}"
            )
        return tuple(float(asked.get(name, 1.0)) for name in names)
    if isinstance(asked, tuple):
        if len(asked) != len(names):
            raise ConfigError(
                f"{_KEY}: has {len(asked)} numbers, but the data has {len(names)} classes; give "
                "one for each, or name the classes: {name: weight}"
            )
        return tuple(map(float, asked))
    if config.data.balance:
        raise ConfigError(
            f"{_KEY}: data.balance draws every class equally often, so balanced weights would "
            "count rare classes twice; remove one of the two"
        )
    counts = data.counts(train)
    if data.kind == "yes_no":
        return tuple((len(train) - count) / count if count else 1.0 for count in counts)
    there = sum(count > 0 for count in counts)
    # A class without a sample to train on is never weighed.
    return tuple(len(train) / (there * count) if count else 1.0 for count in counts)
