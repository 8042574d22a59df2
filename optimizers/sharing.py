"""Weight sharing: the weights of a parameter are cut down to a few values, which are trained.

A weight has a code: 0 if it is pruned, else the number of its centroid, counted from 1. Source:
Han, Mao and Dally 2016, "Deep Compression", section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..common import random
from ..graph.graph import Tensor
from ..layers.initializers import Initializer
from ..layers.layer import Parameter
from .pruning import matches

CODE, CENTROIDS = "code", "centroids"
SharedStart = Literal["linear", "density", "random"]
# Rounds of Lloyd's algorithm; on a line it ends after some tens.
_ROUNDS = 1000
_UNDRAWN = random.Key(0, 0)


def shared_parameter(parameter: Parameter, bits: Mapping[str, int]) -> Parameter | None:
    """The centroids of a parameter as a parameter, if a pattern of ``bits`` matches it."""
    tensor = parameter.tensor
    own = next((b for pattern, b in bits.items() if matches(parameter, pattern)), None)
    if own is None:
        return None
    name = f"{CENTROIDS}/{tensor.name}"
    centroids = Tensor(name, (1 << own,), "float32", "parameter")
    return replace(parameter, tensor=centroids, initializer=Initializer("zeros"))


def cluster(
    values: NDArray[np.float32],
    count: int,
    start: SharedStart = "linear",
    key: random.Key = _UNDRAWN,
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(codes, centroids) of the values that are not 0, by Lloyd's algorithm.

    values: any shape, which the codes have too; centroids: (count,) ascending. ``start``: where
    centroids begin: evenly from the least to the greatest, at even shares of all values, or at
    values drawn with ``key``. A centroid that loses its last value stays where it is.
    """
    flat = values.ravel().astype(np.float64)
    kept = np.flatnonzero(flat)
    codes = np.zeros(flat.size, np.float32)
    if not len(kept):
        return codes.reshape(values.shape), np.zeros(count, np.float32)
    order = kept[np.argsort(flat[kept], kind="stable")]
    ordered = flat[order]
    totals = np.append(0.0, np.cumsum(ordered))
    centroids = _begin(ordered, count, start, key)
    ends = _ends(ordered, centroids)
    for _ in range(_ROUNDS):
        members = np.diff(ends, prepend=0)
        sums = np.diff(totals[ends], prepend=0.0)
        centroids = np.where(members > 0, sums / np.maximum(members, 1), centroids)
        before, ends = ends, _ends(ordered, centroids)
        if (before == ends).all():
            break
    codes[order] = np.repeat(np.arange(1, count + 1), np.diff(ends, prepend=0))
    return codes.reshape(values.shape), centroids.astype(np.float32)


def shared_values(
    codes: NDArray[np.float32], centroids: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The weights that these codes stand for."""
    return np.append(np.zeros(1, np.float32), centroids)[codes.astype(np.intp)]


def _begin(
    ordered: NDArray[np.float64], count: int, start: SharedStart, key: random.Key
) -> NDArray[np.float64]:
    if start == "linear":
        return np.linspace(ordered[0], ordered[-1], count)
    if start == "density":
        return np.quantile(ordered, (np.arange(count) + 0.5) / count)
    drawn = random.uniform(key, 0, count) * len(ordered)
    return np.asarray(ordered[np.sort(drawn.astype(np.intp))])


def _ends(ordered: NDArray[np.float64], centroids: NDArray[np.float64]) -> NDArray[np.intp]:
    """How many values belong to each centroid or to those before it: (count,)."""
    middles = (centroids[1:] + centroids[:-1]) / 2
    return np.append(np.searchsorted(ordered, middles), len(ordered))
