"""How a product may be shared out by tensor_dense.cu: the most promising ways first.

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
from ..libraries.kernels import UNASKED
from ..libraries.layout import BFLOAT, Layout, ceil_div, padded
from ..libraries.runtime import Processors
from .tilings import MOST_REGISTERS, MOST_THREADS, REGISTERS, RESERVED, Fields, Numbers, Typed

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
