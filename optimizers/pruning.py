"""Pruning: weights of small magnitude become 0 and stay 0, by masks of zeros and ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError
from ..common.text import listed
from ..graph.graph import Tensor
from ..layers.layer import Parameter

T = TypeVar("T")
MASK = "mask"
_OF_CHANNELS = ("scale", "shift")
_NAMED = 12


def matches(parameter: Parameter, pattern: str) -> bool:
    """Whether a pattern, a glob or a name, is about the weights of this parameter.

    A glob is about no factors and offsets of channels, such as those of batch norm, which are named
    ``weight`` and ``bias`` too: without its factor a whole channel is lost.
    """
    name = parameter.tensor.name
    if parameter.kind in _OF_CHANNELS:
        return name == pattern
    return fnmatchcase(name, pattern)


def is_pruned(parameter: Parameter, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns matches a parameter."""
    return any(matches(parameter, pattern) for pattern in patterns)


def settings_of(
    key: str, settings: Mapping[str, T], parameters: Sequence[Parameter]
) -> dict[Tensor, T]:
    """The setting of each parameter that a pattern matches: that of the first one.

    Raises ConfigError for a pattern of ``key`` that is the first for no parameter.
    """
    found: dict[Tensor, T] = {}
    used = set()
    for parameter in parameters:
        first = next((each for each in settings if matches(parameter, each)), None)
        if first is not None:
            used.add(first)
            found[parameter.tensor] = settings[first]
    for pattern in settings:
        if pattern not in used:
            names = listed([parameter.tensor.name for parameter in parameters], _NAMED)
            raise ConfigError(
                f"{key}: no parameter matches '{pattern}', or all that do match an earlier "
                f"pattern; the network has {names}"
            )
    return found


def magnitude_mask(values: NDArray[np.float32], keep: float) -> NDArray[np.float32]:
    """1 for the share ``keep`` of the values that are largest in magnitude, at least one; else 0.

    Of equal ones the first are kept. Source: Han et al. 2015, "Learning both weights and
    connections for efficient neural networks".
    """
    count = max(1, round(keep * values.size))
    mask = np.zeros(values.size, np.float32)
    mask[np.argsort(-np.abs(values.ravel()), kind="stable")[:count]] = 1.0
    return mask.reshape(values.shape)
