"""Pruning: weights of small magnitude become 0 and stay 0, by masks of zeros and ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..common.errors import ConfigError
from ..common.records import dataclass
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


@dataclass(frozen=True)
class Cut:
    """Which weights of a parameter are kept: a share of them, or those beyond a threshold.

    Exactly one is given: ``keep``, see ``magnitude_mask``, or ``quality``, see
    ``sensitivity_mask``.
    """

    keep: float | None = None
    quality: float | None = None

    def mask(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """1 for the weights that are kept, else 0."""
        if self.keep is not None:
            return magnitude_mask(values, self.keep)
        assert self.quality is not None
        return sensitivity_mask(values, self.quality)


def cuts(
    keep: Mapping[str, float], sensitivity: Mapping[str, float], parameters: Sequence[Parameter]
) -> dict[Tensor, Cut]:
    """How each parameter that a pattern matches is pruned.

    Raises ConfigError for a pattern that is the first for no parameter, and for a parameter that
    patterns of both match.
    """
    found = {}
    if keep:
        shares = settings_of("prune.keep", keep, parameters)
        found = {tensor: Cut(keep=share) for tensor, share in shares.items()}
    if sensitivity:
        for tensor, quality in settings_of("prune.sensitivity", sensitivity, parameters).items():
            if tensor in found:
                raise ConfigError(
                    f"prune: '{tensor.name}' is matched both in keep and in sensitivity; "
                    "name it in one of them"
                )
            found[tensor] = Cut(quality=quality)
    return found


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


def sensitivity_mask(values: NDArray[np.float32], quality: float) -> NDArray[np.float32]:
    """1 where |w| >= quality * std(w), at least for the largest; else 0.

    The standard deviation is that of the values that are not 0, so that weights which were pruned
    before do not count. Source: Han et al. 2015, "Learning both weights and connections for
    efficient neural networks", section 4.
    """
    sizes = np.abs(values.astype(np.float64))
    kept = values[values != 0].astype(np.float64)
    threshold = min(quality * (kept.std() if kept.size else 0.0), sizes.max(initial=0.0))
    mask: NDArray[np.float32] = ((sizes >= threshold) & (values != 0)).astype(np.float32)
    if not mask.any():
        return magnitude_mask(values, 0.0)
    return mask
