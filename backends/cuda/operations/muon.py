"""Muon: the momentum and the step by kernels of ours, Newton-Schulz by products of many matrices.

A filter's matrix is what its padded tensor holds, row by row: rows and columns of zeros stay zeros,
and the order of columns does not matter to the iteration. Filters of about one size go together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np

from ....graph.ops import MuonUpdate
from ..binding.bind import Binder, binds
from ..libraries.cublas_batched import Stack, StackProduct
from ..libraries.kernels import f32, i32
from ..libraries.layout import BFLOAT, FLOAT, Layout, padded
from .optimizers import FILE, like, pieces, table

# What sides are padded to, for tensor cores; how much longer than its own a filter's rows may get.
SIDE, LONGEST = 8, 4
_FILTER = np.dtype(
    [
        *((name, "u8") for name in ("p", "g", "v", "copy", "x", "y")),
        *((name, "i4") for name in ("size", "row", "stride", "tall", "first", "blocks")),
        *((name, "f4") for name in ("factor", "decay", "root")),
        ("index", "i4"),
    ]
)


@dataclass(frozen=True)
class Matrices:
    """Filters, by their index, whose matrices are stored alike: (short, long)."""

    short: int
    long: int
    members: tuple[int, ...]


def matrices(layouts: Sequence[Layout]) -> list[Matrices]:
    """Filters in groups: equal short sides, long ones filled up with zeros."""
    sides = []
    for index, layout in enumerate(layouts):
        rows = layout.stored[0]
        short, long = sorted((rows, layout.size // rows))
        sides.append((padded(short, SIDE), padded(long, SIDE), index))
    found: list[Matrices] = []
    for short, long, index in sorted(sides, key=lambda side: (-side[0], -side[1], side[2])):
        last = found[-1] if found else None
        if last is not None and last.short == short and LONGEST * long >= last.long:
            found[-1] = Matrices(short, last.long, (*last.members, index))
        else:
            found.append(Matrices(short, long, (index,)))
    return found


@binds(MuonUpdate)
def muon_update(b: Binder, op: MuonUpdate) -> None:
    """The operands of Newton-Schulz are bfloat16, but float32 where nothing may be rounded."""
    operands = FLOAT if b.arithmetic.exact else BFLOAT
    homes = [b.home(p) for p in op.parameters]
    where, blocks = pieces(b, [home.layout.size for home in homes])
    first = np.cumsum([0, *blocks])
    rows: list[tuple[Any, ...]] = [()] * len(homes)
    stacks = []
    for group in matrices([home.layout for home in homes]):
        stack = _Iteration(b, op, group, operands)
        stacks.append(stack)
        for place, i in enumerate(group.members):
            layout = homes[i].layout
            row = layout.size // layout.stored[0]
            rows[i] = (
                *(homes[i].pointer, like(b, op.gradients[i], homes[i])),
                *(b.home(op.buffers[i]).pointer, b.store.bf16_pointer(op.parameters[i])),
                *(stack.begin(place), stack.end(place), layout.size, row, group.long),
                *(int(layout.stored[0] > row), first[i], blocks[i]),
                *(op.factor(i), op.weight_decay[i], sqrt(op.parameters[i].shape[0]), i),
            )
    segments = table(b, _FILTER, rows)
    partial = b.scratch(2 * sum(blocks), "float64")
    norms = b.scratch(len(homes), "float32")
    grid, shown = (sum(blocks),), {"filters": len(homes), "momentum": op.momentum}
    direction = (f32(op.momentum), i32(op.nesterov))
    b.kernel(
        op, (FILE, "muon_momentum", operands), grid, (segments, where, *direction, partial), shown
    )
    scaled = (segments, where, *direction, f32(op.EPS), partial, norms)
    b.kernel(op, (FILE, "muon_normalize", operands), grid, scaled, shown)
    for stack in stacks:
        stack.add()
    rates, step = b.data(op.rates), b.home(op.step).array
    last = (segments, where, rates, step, norms, i32(op.rescale))
    b.kernel(op, (FILE, "muon_update", operands), grid, last, shown)


class _Iteration:
    """Newton-Schulz on the matrices of one group, which go back and forth between two stacks."""

    def __init__(self, b: Binder, op: MuonUpdate, group: Matrices, operands: str) -> None:
        self._b, self._op, self._group, self._operands = b, op, group, operands
        self._item = 2 if operands == BFLOAT else 4
        self._wide = [self._stack(group.long) for _ in range(2)]
        self._square = [self._stack(group.short) for _ in range(2)]

    def _stack(self, columns: int) -> Stack:
        group = self._group
        size = len(group.members) * group.short * columns
        array = self._b.keep(self._b.cupy.zeros(size, f"uint{8 * self._item}"))
        return Stack(int(array.data.ptr), len(group.members), group.short, columns)

    def begin(self, place: int) -> int:
        """Address of the matrix of a member before the iteration."""
        return self._at(self._wide[0], place)

    def end(self, place: int) -> int:
        """Address of the matrix of a member after it."""
        return self._at(self._wide[self._op.iterations % 2], place)

    def _at(self, stack: Stack, place: int) -> int:
        return stack.pointer + place * stack.rows * stack.columns * self._item

    def add(self) -> None:
        """Append the launches: three products an iteration."""
        b, (first, second, third) = self._b, self._op.COEFFICIENTS
        stream, operands = b.stream, self._operands
        across, plain = (
            StackProduct(
                stream.cublas_lt, stream.cuda, stream.cublas.workspace, operands, transposed
            )
            for transposed in (True, False)
        )
        x, other = self._wide
        gram, power = self._square
        squared = plain.launch(gram, gram, power, third, gram, second)
        for _ in range(self._op.iterations):
            self._launch(across.launch(x, x, gram), across.shown(x, gram))
            self._launch(squared, plain.shown(gram, power))
            moved = plain.launch(power, x, other, 1.0, x, first)
            self._launch(moved, plain.shown(power, other))
            x, other = other, x

    def _launch(self, launch: Any, shown: dict[str, object]) -> None:
        self._b.add(self._op, "cublasLt", "cublasLtMatmul", launch, shown)
