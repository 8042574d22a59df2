"""How a product may be shared out by tensor_dense.cu, or by weights.cuh: the best ways first.

The names are those of the kernel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import ClassVar

from typing_extensions import Self

from ....common.records import dataclass
from ..libraries.kernels import THREADS, UNASKED
from ..libraries.layout import BFLOAT, Layout, ceil_div, padded
from ..libraries.runtime import Processors
from .tilings import (
    MOST_REGISTERS,
    MOST_THREADS,
    REGISTERS,
    RESERVED,
    Fields,
    Numbers,
    Typed,
    few_of_each,
)

SPLITS = (1, 2, 4, 8, 16)
# That a multiprocessor runs at once.
MOST_BLOCKS = 32
# Sums of a thread, and registers beside them and what is on its way from memory.
MOST_SUMS, BESIDE = 64, 48
# Of the model, in clocks: until a block runs and has ended; one way to memory and back; a product,
# which takes a quarter of a multiprocessor; one that waits for the one before. Bytes that a
# multiprocessor gets in a clock, and sums of warps that it adds up.
LAUNCH, LATENCY, PRODUCT, CHAIN = 1500, 900, 6.0, 20.0
RATE, SUMS_RATE = 28.0, 16.0
# The same of what its own cache has.
CACHED_RATE = 64.0


@dataclass(frozen=True)
class DenseGeometry(Typed):
    """A product as the kernel computes it; sizes and pitches are in stored numbers.

    deep_a, deep_b: whether stored rows run along the depth. counted: columns that are no padding.
    dtype: of the operands; result: of c.
    """

    rows: int
    columns: int
    depth: int
    pitches: tuple[int, int, int]
    deep_a: bool
    deep_b: bool
    counted: int
    dtype: str
    result: str

    @classmethod
    def of(
        cls, a: Layout, b: Layout, c: Layout, transpose_a: bool, transpose_b: bool
    ) -> DenseGeometry:
        """That of c = op(a) op(b), of matrices that lie like this."""
        rows, depth = a.stored[::-1] if transpose_a else a.stored
        columns = b.stored[0] if transpose_b else b.columns
        sizes = (rows, columns, depth, (a.columns, b.columns, c.columns))
        return cls(*sizes, not transpose_a, transpose_b, c.shape[1], a.dtype, c.dtype)

    @property
    def fits(self) -> bool:
        """Whether every load is of 16 bytes of one row."""
        a, b, _ = self.pitches
        along = self.depth if self.deep_a or self.deep_b else 0
        return a % self.chunk == b % self.chunk == along % self.chunk == 0

    def numbers(self) -> Numbers:
        """What the kernel is compiled with, whatever the tiling."""
        names = "ROWS COLUMNS DEPTH A_PITCH B_PITCH C_PITCH A_DEEP B_DEEP COUNTED RESULT_BFLOAT"
        sizes = (self.rows, self.columns, self.depth, *self.pitches)
        kinds = (int(self.deep_a), int(self.deep_b), self.counted, int(self.result == BFLOAT))
        return dict(zip(names.split(), (*sizes, *kinds), strict=True))


@dataclass(frozen=True)
class ProductTiling(Fields):
    """One way to share out a product by a kernel."""

    kernel: ClassVar[str]
    # How many numbers name one.
    lengths: ClassVar[tuple[int, ...]]

    geometry: DenseGeometry

    @classmethod
    def named(cls, geometry: DenseGeometry, values: Sequence[int]) -> Self:
        """The one of these numbers, as ``of``. Raises ValueError if it is none."""
        if len(values) in cls.lengths:
            found = cls.of(geometry, values)
            if found.sound:
                return found
        shown = "-".join(map(str, values))
        raise ValueError(f"{cls.kernel}: the tuning's tiling {shown} is unknown")

    @abstractmethod
    def grid(self) -> tuple[int, int]:
        """Blocks: groups of columns, groups of rows."""


@dataclass(frozen=True)
class DenseTiling(ProductTiling):
    """One way to share out a product: sixteens of rows and eights of columns of a warp, warps that
    share the depth, and warps of a block side by side along rows and along columns."""

    kernel, lengths = "tensor_dense", (3, 5)

    a_tiles: int
    b_tiles: int
    split: int
    a_warps: int = 1
    b_warps: int = 1

    @property
    def parts(self) -> int:
        """Of a block, side by side."""
        return self.a_warps * self.b_warps

    @property
    def threads(self) -> int:
        return 32 * self.split * self.parts

    @property
    def sums(self) -> int:
        """Of a thread."""
        return 4 * self.a_tiles * self.b_tiles

    @property
    def shared(self) -> int:
        return 128 * self.sums * self.split * self.parts if self.split > 1 else 0

    @property
    def turns(self) -> int:
        """Spans of the depth, of four chunks, that a warp takes one after the other."""
        return ceil_div(self.geometry.depth, 4 * self.geometry.chunk * self.split)

    @property
    def _words(self) -> int:
        return 8 * self.a_tiles + 4 * self.b_tiles

    @property
    def stages(self) -> int:
        """Spans that are on their way from memory at the same time."""
        return min(self.turns, max(1, min(4, 64 // self._words)))

    @property
    def registers(self) -> int:
        """About so many of a thread."""
        return self.sums + self.stages * self._words + BESIDE

    @property
    def sound(self) -> bool:
        g = self.geometry
        return (
            min(self.a_tiles, self.b_tiles, self.a_warps, self.b_warps) > 0
            and self.split in SPLITS
            and (g.deep_a or self.a_tiles % 2 == 0)
            and (g.deep_b or self.b_tiles % 4 == 0)
            and self.sums <= MOST_SUMS
            and self.shared <= UNASKED
            and self.threads <= MOST_THREADS
            and self.registers <= MOST_REGISTERS
            and self.threads * padded(self.registers, 8) <= REGISTERS
        )

    def grid(self) -> tuple[int, int]:
        g = self.geometry
        wide, tall = 8 * self.b_tiles * self.b_warps, 16 * self.a_tiles * self.a_warps
        return ceil_div(g.columns, wide), ceil_div(g.rows, tall)

    def clocks(self, processors: Processors) -> float:
        """About so many in all."""
        across, down = self.grid()
        resident = min(
            REGISTERS // (self.threads * padded(self.registers, 8)),
            processors.shared // (self.shared + RESERVED),
            MOST_BLOCKS,
        )
        here = ceil_div(across * down, processors.count)
        at_once = min(resident, here)
        spans = ceil_div(self.geometry.depth, 4 * self.geometry.chunk)
        tall, wide = 16 * self.a_tiles, 8 * self.b_tiles
        bytes_ = spans * 64 * (tall * self.a_warps + wide * self.b_warps)
        cached = spans * 64 * (tall + wide) * self.parts
        waits = LATENCY * ceil_div(self.turns, self.stages)
        tiles = self.a_tiles * self.b_tiles
        alone = 2 * self.turns * max(CHAIN, PRODUCT * tiles)
        together = 2 * spans * at_once * tiles * self.parts * PRODUCT / 4
        busy = max(alone, together)
        loads = at_once * max(bytes_ / RATE, cached / CACHED_RATE)
        sums = 32 * self.sums * self.parts
        added = at_once * sums * (self.split if self.split > 1 else 0) / SUMS_RATE
        return ceil_div(here, resident) * (LAUNCH + max(waits + busy, loads) + added)


@cache
def dense_tilings(
    geometry: DenseGeometry, most: int, processors: Processors
) -> tuple[DenseTiling, ...]:
    """The ``most`` promising ways, the best first; none if nothing fits.

    Half of them have one part in a block: how much parts gain from each other's loads depends on
    the order in which these come.
    """
    found = sorted(_every(geometry), key=lambda each: each.clocks(processors))
    alone = [each for each in found if each.parts == 1][: (most + 1) // 2]
    others = [each for each in found if each not in alone][: most - len(alone)]
    kept = {*alone, *others}
    return tuple(each for each in found if each in kept)


def _every(g: DenseGeometry) -> Iterator[DenseTiling]:
    of_a = (1, 2) if g.deep_a else (2, 4)
    of_b = (1, 2, 4) if g.deep_b else (4, 8)
    spans = ceil_div(g.depth, 4 * g.chunk)
    for a_tiles, b_tiles, split, *warps in product(of_a, of_b, SPLITS, (1, 2), (1, 2)):
        found = DenseTiling(g, a_tiles, b_tiles, split, *warps)
        # No warp without work of its own.
        beside = (warps[0] - 1) * 16 * a_tiles < g.rows and (warps[1] - 1) * 8 * b_tiles < g.columns
        if found.sound and split < 2 * spans and beside:
            yield found


# Rows and columns of a warp, samples of a stage that it takes, bytes beside a line's numbers.
SIDE, SHARE, PADS = 32, 16, {2: 16, 4: 32}
# Bytes of shared memory of the largest block that any GPU runs.
MOST_SHARED = 227 << 10
# Of it, what step_end.cu may hold besides, for its sums and a classifier's end.
OF_ITS_OWN = 20 << 10
# Ways to cut a shape of blocks that are timed.
OF_A_SHAPE = 3
# Of the model: clocks of a multiprocessor for a warp's share of a stage, by bytes of a number.
TURN = {2: 16.0, 4: 34.0}


@dataclass(frozen=True)
class UpdateTiling(ProductTiling):
    """One way to share out a product: parts of 32 by 32 of a block, warps that share the depth of
    each, and stages of the depth that are in shared memory at once."""

    kernel, lengths = "dense_update", (4,)

    down: int
    across: int
    split: int
    stages: int

    @property
    def threads(self) -> int:
        return 32 * self.down * self.across * self.split

    @property
    def turns(self) -> int:
        """Stages in all."""
        return ceil_div(self.geometry.depth, SHARE * self.split)

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return SIDE * self.down, SIDE * self.across

    @property
    def shared(self) -> int:
        tall, wide = self.sides
        item = self.geometry.item
        stage = SHARE * self.split * ((tall + wide) * item + 2 * PADS[item])
        return max(self.stages * stage, 4 * self.split * tall * (wide + 8))

    @property
    def sound(self) -> bool:
        numbers = (self.down, self.across, self.split, self.stages)
        return (
            min(numbers) > 0
            and self.split <= 8
            and self.threads == THREADS
            and self.stages <= self.turns
            and self.shared <= MOST_SHARED
        )

    def grid(self) -> tuple[int, int]:
        tall, wide = self.sides
        return ceil_div(self.geometry.columns, wide), ceil_div(self.geometry.rows, tall)

    def clocks(self, processors: Processors) -> float:
        """About so many in all."""
        tall, wide = self.sides
        item, depth = self.geometry.item, self.geometry.depth
        across, down = self.grid()
        resident = max(1, processors.shared // (self.shared + RESERVED))
        here = ceil_div(across * down, processors.count)
        at_once = min(resident, here)
        warps = self.threads / 32
        waits = LATENCY * (1 + (self.turns - self.stages) / (2 * self.stages))
        loads = at_once * depth * (tall + wide) * item / RATE
        busy = at_once * self.turns * warps * TURN[item]
        moved = at_once * tall * wide * 16 / CACHED_RATE
        return ceil_div(here, resident) * (LAUNCH + max(waits + busy, loads) + moved)


@cache
def update_tilings(
    geometry: DenseGeometry, most: int, processors: Processors
) -> tuple[UpdateTiling, ...]:
    """The ``most`` promising ways, the best first; none if nothing fits."""
    room = processors.shared - OF_ITS_OWN
    fitting = [each for each in _every_update(geometry) if each.shared <= room]
    fitting.sort(key=lambda each: each.clocks(processors))
    # The model says less of how a shape is cut than of the shapes.
    few = OF_A_SHAPE if most <= len(fitting) else most
    return few_of_each(fitting, lambda each: each.sides, few)[:most]


def _every_update(g: DenseGeometry) -> Iterator[UpdateTiling]:
    for down, across, split in product((1, 2, 4), (1, 2, 4), (1, 2, 4, 8)):
        turns = ceil_div(g.depth, SHARE * split)
        for stages in sorted({min(turns, each) for each in (2, 4, 8, turns)}):
            found = UpdateTiling(g, down, across, split, stages)
            # No warp without work of its own.
            beside = (down - 1) * SIDE < g.rows and (across - 1) * SIDE < g.columns
            if found.sound and beside and split < 2 * ceil_div(g.depth, SHARE):
                yield found
