"""What ranks do together, over whatever connection this process has."""

from __future__ import annotations

import numpy as np

from ...graph import ops
from ..base import Array
from ..collectives import joined
from .kernels import kernel
from .step import Arrays


@kernel(ops.AllReduce, "concatenate")
def all_reduce(op: ops.AllReduce, values: Arrays) -> Arrays:
    flat = np.concatenate([value.reshape(-1) for value in values])
    if op.ranks > 1:
        joined(op.ranks).sum(flat)
    ends = np.cumsum([value.size for value in values])[:-1]
    parts = zip(np.split(flat, ends), values, strict=True)
    return tuple(part.reshape(value.shape) for part, value in parts)


@kernel(ops.AllGather, "copy")
def all_gather(op: ops.AllGather, rows: Array) -> Array:
    found = rows.copy()
    if op.ranks > 1:
        joined(op.ranks).gather(found)
    return found


@kernel(ops.SkipParts, "add")
def skip_parts(op: ops.SkipParts, step: Array) -> Array:
    return step + op.parts


@kernel(ops.KeepMetrics, "copy")
def keep_metrics(op: ops.KeepMetrics, step: Array, sums: Array, kept: Array) -> tuple[Array, Array]:
    found = kept.copy()
    found[int(step[0]) % op.parts] = sums
    return np.zeros_like(sums), found


@kernel(ops.AddMetrics, "add")
def add_metrics(op: ops.AddMetrics, kept: Array, sums: Array) -> Array:
    total = sums.copy()
    for row in kept:
        total += row
    return total
