"""Muon: the momentum and the step by kernels of ours, Newton-Schulz by products of many matrices.

A filter's matrix is what its padded tensor holds, row by row: rows and columns of zeros stay zeros,
and the order of columns does not matter to the iteration. Filters of about one size go together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import sqrt
from typing import Any

import numpy as np

from ....common.records import dataclass
from ....graph.ops import MuonUpdate
from ..binding.bind import Binder, binds
from ..binding.launch_list import Varying
from ..libraries.cublas_lt import Stack, StackProduct
from ..libraries.kernels import f32
from ..libraries.layout import BFLOAT, FLOAT, Layout, padded
from ..libraries.runtime import address_of
from .optimizers import FILE, like, pieces, ruled

# What sides are padded to, for tensor cores; how much longer than its own a filter's rows may get.
SIDE, LONGEST = 8, 4
# struct FilterSegment of optimizers.cu.
_FILTER = np.dtype(",".join(["u8"] * 6 + ["i4"] * 6 + ["f4"] * 3 + ["i4"]))


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
    layouts = [home.layout for home in homes]
    where, blocks = pieces(b, [layout.size for layout in layouts])
    first = np.cumsum([0, *blocks])
    rows: list[tuple[Any, ...]] = [()] * len(homes)
    stacks = []
    for group in matrices(layouts):
        stack = _Iteration(b, op, group, operands)
        stacks.append(stack)
        for place, i in enumerate(group.members):
            layout = layouts[i]
            row = layout.size // layout.stored[0]
            rows[i] = (
                *(homes[i].pointer, like(b, op.gradients[i], homes[i])),
                *(b.home(op.buffers[i]).pointer, b.store.bf16_pointer(op.parameters[i])),
                *(*stack.ends(place), layout.size, row, group.long),
                *(int(layout.stored[0] > row), first[i], blocks[i]),
                *(op.factor(i), op.weight_decay[i], sqrt(op.parameters[i].shape[0]), i),
            )
    live = b.live.add(op, ("momentum", "lr_factor", "weight_decay"))
    segments = b.varying(live, ruled(np.array(rows, _FILTER), "f12", "f13"))
    partial = b.scratch(2 * sum(blocks), "float64")
    norms = b.scratch(len(homes), "float32")
    grid, shown = (sum(blocks),), {"filters": len(homes), "momentum": op.momentum}
    direction = (Varying(live, lambda op: f32(op.momentum)), op.nesterov)

    def launch(name: str, *arguments: Any) -> None:
        b.kernel(op, (FILE, name, operands), grid, (segments, where, *arguments), shown)

    launch("muon_momentum", *direction, partial)
    launch("muon_normalize", *direction, f32(op.EPS), partial, norms)
    _add_beside(b, stacks)
    launch("muon_update", b.data(op.rates), op.step, norms, op.rescale)


def _add_beside(b: Binder, stacks: Sequence[_Iteration]) -> None:
    """Append the iterations of all groups, on as many streams as compute: their products are small,
    and each waits for the one before."""
    own = b.current
    lanes = [(own + turn) % b.lanes for turn in range(len(stacks))]
    # First those on other streams, which need not wait for what is done on this one then.
    for lane, stack in sorted(zip(lanes, stacks, strict=True), key=lambda each: each[0] == own):
        b.current = lane
        b.join([own])
        stack.add()
    b.current = own
    b.join(set(lanes))


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
        array = self._b.zeros(size, f"uint{8 * self._item}")
        return Stack(address_of(array), len(group.members), group.short, columns)

    def ends(self, place: int) -> tuple[int, int]:
        """Addresses of the matrix of a member before the iteration and after it."""
        begin, end = self._wide[0], self._wide[self._op.iterations % 2]
        offset = place * begin.rows * begin.columns * self._item
        return begin.pointer + offset, end.pointer + offset

    def add(self) -> None:
        """Append the launches: three products an iteration."""
        _, second, third = self._op.COEFFICIENTS
        x, other = self._wide
        gram, power = self._square
        across = self._product("gram", (x, x, gram), transposed=True)
        back = self._product("gram", (other, other, gram), transposed=True)
        squared = self._product("power", (gram, gram, power), alpha=third, c=gram, beta=second)
        there, return_ = (self._moved(power, *ends) for ends in ((x, other), (other, x)))
        for turn in range(self._op.iterations):
            for launch in (back, squared, return_) if turn % 2 else (across, squared, there):
                launch()

    def _moved(self, power: Stack, x: Stack, other: Stack) -> Callable[[], None]:
        first = self._op.COEFFICIENTS[0]
        return self._product("step", (power, x, other), c=x, beta=first)

    def _product(
        self, role: str, stacks: tuple[Stack, Stack, Stack], **rest: Any
    ) -> Callable[[], None]:
        """What appends a launch, by the algorithm of the choices, or the heuristics' first.

        ``role``: what products have in common of which one is timed for all.
        """
        b, stream = self._b, self._b.stream
        where = (stream.cublas_lt, stream.cuda, stream.cublas.workspace, self._operands)
        product = StackProduct(*where, stacks, **rest)
        key = b.choice(self._op, f"newton-schulz/{self._group.short}x{self._group.long}/{role}")
        b.products.setdefault(key, product)
        chosen = b.choices.get(f"{key}/gemm", "") if b.arithmetic.fusion else ""
        launch = product.launch(int(chosen or 0))
        ends = (launch, product.shown, *((f"algorithm {chosen}",) if chosen else ()))
        return partial(b.add, self._op, "cublasLt", "cublasLtMatmul", *ends)
