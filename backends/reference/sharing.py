"""Shared weights: looked up in a table, and gradients summed by its rows."""

from __future__ import annotations

import numpy as np

from ...graph.ops import ShareWeights, SumShared
from ..base import Array
from .kernels import kernel
from .step import Arrays


@kernel(ShareWeights, "take")
def share_weights(op: ShareWeights, codes: Arrays, centroids: Arrays, parameters: Arrays) -> Arrays:
    return tuple(
        np.append(np.zeros(1, c.dtype), c)[code.astype(np.intp)]
        for code, c in zip(codes, centroids, strict=True)
    )


@kernel(SumShared, "bincount")
def sum_shared(op: SumShared, gradients: Arrays, codes: Arrays) -> Arrays:
    return tuple(
        _summed(g, code, total.size).astype(g.dtype)
        for g, code, total in zip(gradients, codes, op.sums, strict=True)
    )


def _summed(gradient: Array, codes: Array, count: int) -> Array:
    numbers = codes.ravel().astype(np.intp)
    return np.bincount(numbers, gradient.ravel(), count + 1)[1:]
