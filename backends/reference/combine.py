"""Sums, concatenation along channels, and their backward."""

from __future__ import annotations

from functools import reduce

import numpy as np

from ...graph.ops import Add, Concat, PadChannels, Slice
from ..base import Array
from .kernels import kernel
from .pointwise import activated


@kernel(Add, "add")
def add(op: Add, terms: tuple[Array, ...]) -> Array:
    return activated(op, reduce(np.add, terms))


@kernel(Concat, "concatenate")
def concat(op: Concat, parts: tuple[Array, ...]) -> Array:
    return np.concatenate(parts, axis=1)


@kernel(Slice, "take")
def slice_channels(op: Slice, x: Array) -> Array:
    return x[:, op.begin : op.begin + op.y.shape[1]]


@kernel(PadChannels, "pad")
def pad_channels(op: PadChannels, x: Array) -> Array:
    added = op.y.shape[1] - op.x.shape[1]
    return np.pad(x, [(0, added if axis == 1 else 0) for axis in range(x.ndim)])
