"""Sums over parts of a batch, left by blocks of one kernel and added up by another: slices.cuh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....common.records import dataclass
from ....graph.graph import Op, Tensor
from ....graph.ops import BiasGrad, Conv2dBackwardFilter, MatMul
from .buffer import Buffer

# Slices that a block asks for at once if one thread has one: AT_ONCE * SUM_THREADS of slices.cuh.
AT_ONCE = 5 * 256
# 4 to 32 neighbouring threads share a slice.
LEAST_SHIFT, MOST_SHIFT = 2, 5
SEGMENT = "u8,u8,i4,i4,i4,i4,i4,i4,f4,f4"
# What follows from a sum: the parameter's place in its arena, factor of the rate, weight decay.
Rule = tuple[int, float, float]


@dataclass(frozen=True)
class Slices:
    """``target`` is the sum of ``count`` rows of ``size`` floats, ``stride`` apart, at an address.

    ``op``, ``stream``: what leaves them, and where. ``held``: the target's buffer.
    """

    op: Op
    stream: int
    target: Tensor
    held: Buffer
    address: int
    count: int
    stride: int
    size: int

    @property
    def each(self) -> int:
        """Neighbours that a thread takes at once: four where all of them lie so."""
        fours = self.address % 16 == self.stride % 4 == self.size % 4 == 0
        return 4 if fours else 1

    @property
    def shift(self) -> int:
        """Of the threads that share a slice: as many as still let a block ask for all at once."""
        shift = MOST_SHIFT
        while shift > LEAST_SHIFT and self.count << shift > AT_ONCE:
            shift -= 1
        return shift

    @property
    def wide(self) -> int:
        """Neighbours of a block."""
        return self.each << self.shift


def table_of(pending: Sequence[Slices], rules: Mapping[Tensor, Rule] | None = None) -> NDArray[Any]:
    """struct Segment of each; ``rules``: by target, if a kernel updates parameters by the sums."""
    rows = [
        (
            *(each.address, each.held.pointer, each.count, each.stride, each.size),
            *(each.each, each.shift, *((rules or {}).get(each.target, (0, 0.0, 0.0)))),
        )
        for each in pending
    ]
    return np.array(rows, SEGMENT)


def places_of(pending: Sequence[Slices]) -> NDArray[np.int32]:
    """(segment, first element) of every block: first where most slices are, which take longest."""
    order = sorted(range(len(pending)), key=lambda i: -pending[i].count)
    found = [(i, at) for i in order for at in range(0, pending[i].size, pending[i].wide)]
    return np.asarray(found, "int32").reshape(-1, 2)


def sum_of_rows(op: Op) -> tuple[Tensor | None, Tensor | None]:
    """The dy whose sum over rows is the operation's bias gradient, and that gradient."""
    if isinstance(op, BiasGrad):
        return op.dy, op.db
    if isinstance(op, Conv2dBackwardFilter):
        return op.dy, op.bias_grad
    if isinstance(op, MatMul) and op.transpose_a:
        return op.a, op.bias_grad
    return None, None
