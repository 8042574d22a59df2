"""What the ways have in common in which the loops of convolutions on tensor cores may be cut.

A model of the time that a way takes says which are the most promising, and the device then says
which is fastest. The names are those of tensor_conv.cu and tensor_filter.cu.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from typing import ClassVar, NamedTuple, TypeVar

from typing_extensions import Self

from ....common.records import dataclass
from ....graph.geometry import Window
from ....graph.graph import Shape
from ..libraries.layout import BFLOAT, ceil_div, padded
from ..libraries.runtime import Processors

Numbers = dict[str, int]
# Of a multiprocessor: registers and threads. Of a thread: registers of sums, and in all.
REGISTERS, MOST_THREADS = 1 << 16, 512
MOST_SUMS, MOST_REGISTERS = 128, 240
# Bytes that the device's own needs take of a block's shared memory.
RESERVED = 1 << 10
# Shapes of tiles of which variants are looked at, and variants of one shape that may be kept.
SHAPES, OF_A_SHAPE = 48, 2


class Typed:
    """What is computed of numbers of a type."""

    dtype: str

    @property
    def chunk(self) -> int:
        """Numbers in 16 bytes."""
        return 16 // self.item

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return 2 if self.dtype == BFLOAT else 4


@dataclass(frozen=True)
class Geometry(Typed):
    """A convolution as a kernel computes it, of x (C, H, W) to y (K, rows, columns) as stored.

    data: the gradient of pictures; x is the gradient of the output then. dtype: of x and y.
    """

    x: Shape
    y: Shape
    window: Window
    data: bool
    dtype: str

    @property
    def chunks(self) -> int:
        """Of a pixel of x."""
        return ceil_div(self.x[0], self.chunk)

    @property
    def edges(self) -> tuple[int, int]:
        """Padding at the top and left of what is computed."""
        top, _, left, _ = self.window.padding
        height, width = self.window.kernel
        return (height - 1 - top, width - 1 - left) if self.data else (top, left)

    def numbers(self) -> Numbers:
        """What the kernels are compiled with, whatever the tiling."""
        names = "CHANNELS HEIGHT WIDTH FILTERS ROWS COLUMNS KERNEL_H KERNEL_W TOP LEFT"
        values = (*self.x, *self.y, *self.window.kernel, *self.edges)
        return dict(zip(names.split(), values, strict=True))


class Work(NamedTuple):
    """What a block does for each of its ``turns``, and how many of them there are.

    In bytes: tile, filters (once), out. serial: products of a warp, one after the other. matrices:
    clocks of reads from shared memory. sums: products whose result another warp adds up.
    """

    blocks: int
    resident: int
    threads: int
    turns: int
    ahead: bool
    warps: int
    products: float
    serial: float
    matrices: float
    tile: float
    filters: float
    out: float
    sums: float

    def clocks(self, processors: int, rates: Rates) -> float:
        """About so many in all."""
        at_once = min(self.resident, ceil_div(self.blocks, processors))
        waves = ceil_div(self.blocks, processors * at_once)
        warps = at_once * self.warps
        work = at_once * max(
            rates.product * self.products * max(1.0, 4 / warps), rates.matrix * self.matrices
        )
        work *= 1 + rates.few / warps
        compute = max(work, rates.serial * self.serial)
        compute += at_once * (rates.sum * self.sums + self.out / rates.out)
        byte = max(1 / rates.load, rates.issue / min(at_once * self.threads, 1024))
        load = at_once * self.tile * byte
        turn = max(load, compute) if self.ahead and self.turns > 1 else load + compute
        turn += rates.turn if self.turns > 1 else 0
        return waves * (rates.launch + at_once * self.filters * byte + self.turns * turn)


class Rates(NamedTuple):
    """Of the model, in clocks; ``load`` and ``out`` in bytes a clock.

    Fitted to ways that were timed on an H200. The fastest way of a convolution is among the eight
    that the model puts first, or by 1.2% faster than the fastest of these, on average.
    """

    launch: float
    load: float
    product: float
    matrix: float
    serial: float
    turn: float
    out: float
    sum: float
    issue: float
    few: float


@dataclass(frozen=True)
class Fields(ABC):
    """One way to cut the loops of a kernel; its fields, behind the geometry, are what the kernel is
    compiled with."""

    @property
    def numbers(self) -> Numbers:
        """The fields in capitals."""
        names = [each.name for each in fields(self)][1:]
        return {name.upper(): int(getattr(self, name)) for name in names}

    @classmethod
    def of(cls, geometry: object, values: Sequence[int]) -> Self:
        """The one of these numbers, in the order of ``numbers``. Raises TypeError if they are too
        many or too few."""
        made: Callable[..., Self] = cls
        return made(geometry, *values)

    @property
    @abstractmethod
    def sound(self) -> bool:
        """Whether the kernel can be compiled and launched like this."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Of a block."""

    @property
    @abstractmethod
    def shared(self) -> int:
        """Bytes of shared memory of a block: SHARED_BYTES."""


@dataclass(frozen=True)
class Cut(Fields):
    """One of a convolution."""

    geometry: Geometry

    @property
    @abstractmethod
    def registers(self) -> int:
        """About so many of a thread."""

    @abstractmethod
    def grid(self, n: int, processors: Processors) -> tuple[int, ...]:
        """Blocks for n pictures, along each axis."""


class Modelled(Cut):
    """One whose time a model tells; rates: those of the model."""

    rates: ClassVar[Rates]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """What the tile is, whichever warps share it."""

    @abstractmethod
    def work(self, n: int, processors: Processors) -> Work:
        """What the model of the time knows."""


AnyFields = TypeVar("AnyFields", bound=Fields)
AnyTiling = TypeVar("AnyTiling", bound=Cut)
AnyModelled = TypeVar("AnyModelled", bound=Modelled)


def fits(tiling: Cut, processors: Processors, further: int = 0) -> bool:
    """Whether a multiprocessor can hold as many blocks as it should, with all that they need;
    ``further``: bytes of shared memory that a block has besides."""
    resident, shared = tiling.numbers["RESIDENT"], tiling.shared + further
    return (
        tiling.sound
        and tiling.threads <= MOST_THREADS
        and tiling.registers <= MOST_REGISTERS
        and resident * tiling.threads * padded(tiling.registers, 8) <= REGISTERS
        and shared <= processors.shared_of_block
        and resident * (shared + RESERVED) <= processors.shared
    )


def best(
    shapes: Iterable[AnyModelled],
    variants: Callable[[AnyModelled], Iterable[AnyModelled]],
    n: int,
    most: int,
    processors: Processors,
) -> tuple[AnyModelled, ...]:
    """The best variants of the best shapes, few of each."""
    first = ranked(shapes, n, processors)[:SHAPES]
    every = ranked((v for shape in first for v in variants(shape)), n, processors)
    return few_of_each(every, lambda tiling: tiling.shape, OF_A_SHAPE)[:most]


def ranked(every: Iterable[AnyModelled], n: int, processors: Processors) -> list[AnyModelled]:
    """Those that fit, the fastest by the model first."""
    return sorted(
        (tiling for tiling in every if fits(tiling, processors)),
        key=lambda each: each.work(n, processors).clocks(processors.count, each.rates),
    )


def few_of_each(
    every: Iterable[AnyFields], shape: Callable[[AnyFields], object], few: int
) -> tuple[AnyFields, ...]:
    """The first few of each shape, in their order."""
    seen, kept = Counter[object](), list[AnyFields]()
    for each in every:
        seen[shape(each)] += 1
        if seen[shape(each)] <= few:
            kept.append(each)
    return tuple(kept)


def sizes_of_parts(size: int, into: Iterable[int]) -> list[int]:
    """The sizes of the largest of so many parts, without those that another number makes too."""
    return sorted({ceil_div(size, min(parts, size)) for parts in into})


def columns_of_a_warp(columns: int, most: int) -> list[int]:
    """Columns of a warp: few, and as many as it can have, without a remainder if that is so."""
    every = [each for each in sizes_of_parts(columns, range(1, columns + 1)) if 4 <= each <= most]
    return sorted({*every[:1], *every[-2:]}) or [min(columns, most)]
