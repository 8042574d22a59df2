"""The weights of the classes in the loss of a training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError
from ..common.text import listed
from ..configs import RunConfig
from ..datasets import ImageSet
from ..layers.losses import LOSSES

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
