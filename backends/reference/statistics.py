"""Running statistics of a batch in parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import ops
from ..base import Array
from .kernels import kernel
from .step import Arrays


@kernel(ops.KeepStatistics, "concatenate")
def keep_statistics(op: ops.KeepStatistics, values: Arrays, step: Array, kept: Array) -> Array:
    found = kept.copy()
    found[int(step[0]) % op.parts] = np.concatenate([value.reshape(-1) for value in values])
    return found


@kernel(ops.MoveStatistics, "multiply")
def move_statistics(op: ops.MoveStatistics, kept: Array, running: Arrays) -> Arrays:
    moved = [each.copy() for each in running]
    move(op, kept, moved)
    return tuple(moved)


def move(op: ops.MoveStatistics, kept: Array, running: Sequence[Array]) -> None:
    """Move the statistics in place, each sum in float64."""
    for row in kept:
        for i, (_, span) in enumerate(op.spans()):
            value = row[span].reshape(running[i].shape)
            running[i][...] = (1.0 - op.momentum[i]) * running[i] + np.float64(op.weight[i]) * value
