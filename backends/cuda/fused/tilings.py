"""How the loops of convolutions on tensor cores may be cut: the most promising ways first.

A model of the time that a way takes says which those are, and the device then says which is
fastest. The names are those of tensor_conv.cu and tensor_filter.cu.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import product
from typing import ClassVar, NamedTuple, TypeVar

from typing_extensions import Self

from ....graph.geometry import Window
from ....graph.graph import Shape
from ..libraries.layout import ceil_div, padded
from ..libraries.runtime import Processors

Numbers = dict[str, int]
# Of a multiprocessor: registers and threads. Of a thread: registers of sums, and in all.
REGISTERS, MOST_THREADS = 1 << 16, 512
MOST_SUMS, MOST_REGISTERS = 128, 240
# Bytes that the device's own needs take of a block's shared memory.
RESERVED = 1 << 10
# Bytes of the slices of one gradient.
MOST_SLICE_BYTES = 8 << 20
# Shapes of tiles of which variants are looked at, and variants of one shape that may be kept.
SHAPES, OF_A_SHAPE = 48, 2


@dataclass(frozen=True)
class Geometry:
    """A convolution as a kernel computes it, of x (C, H, W) to y (K, rows, columns) as stored.

    data: the gradient of pictures; x is the gradient of the output then. narrow: in bfloat16.
    """

    x: Shape
    y: Shape
    window: Window
    data: bool
    narrow: bool

    @property
    def chunk(self) -> int:
        """Numbers in 16 bytes."""
        return 8 if self.narrow else 4

    @property
    def item(self) -> int:
        """Bytes of a number."""
        return 2 if self.narrow else 4

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


class _Work(NamedTuple):
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

    def clocks(self, processors: int, rates: _Rates) -> float:
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


class _Rates(NamedTuple):
    """Of the model, in clocks; ``load`` and ``out`` in bytes a clock.

    Fitted to 3,398 ways that were timed on an H200. The fastest way of a convolution is among the
    eight that the model puts first, or by 1.2% faster than the fastest of these, on average.
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


CONV_RATES = _Rates(3230, 50.0, 0.93, 1.0, 6.2, 2380, 7.7, 20.2, 6.8, 0.69)
FILTER_RATES = _Rates(4760, 21.8, 2.0, 2.14, 1.0, 3230, 12.4, 5.7, 11.1, 3.05)


@dataclass(frozen=True)
class _Cut:
    geometry: Geometry
    rates: ClassVar[_Rates]

    @property
    def numbers(self) -> Numbers:
        """What the kernel is compiled with: the fields in capitals."""
        names = [each.name for each in fields(self)][1:]
        return {name.upper(): int(getattr(self, name)) for name in names}

    @classmethod
    def of(cls, geometry: Geometry, values: Sequence[int]) -> Self:
        """The one of these numbers, in the order of ``numbers``. Raises TypeError if they are too
        many or too few."""
        made: Callable[..., Self] = cls
        return made(geometry, *values)


@dataclass(frozen=True)
class Tiling(_Cut):
    """One way to cut the loops of tensor_conv.cu."""

    rates = CONV_RATES

    pictures: int
    band: int
    deep: int
    across: int
    octets: int
    block_octets: int
    units_at_once: int
    split: int
    once: bool
    ahead: bool
    resident: int

    @property
    def shape(self) -> tuple[int, ...]:
        """What the tile is, whichever warps share it."""
        sizes = (self.pictures, self.band, self.deep, self.across)
        return (*sizes, self.octets, self.block_octets)

    @property
    def sound(self) -> bool:
        """Whether units fill the tile."""
        return (
            min(self.pictures, self.band, self.across, self.resident) > 0
            and 16 % self.deep == self.pictures % (16 // self.deep) == self.band % self.deep == 0
            and self.block_octets % self.octets == 0
            and self.units_at_once * self.split > 0
        )

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.units_at_once * self.split

    @property
    def _turns_across(self) -> int:
        return ceil_div(self.geometry.y[2], self.across)

    @property
    def units(self) -> int:
        """That a block has of one group of pictures."""
        down = self.pictures * self.band // 16
        return down * self._turns_across * (self.block_octets // self.octets)

    @property
    def filter_bytes(self) -> int:
        """Of the filters in shared memory."""
        g, filters = self.geometry, 8 * self.block_octets
        pitch = g.window.area * (filters if g.data else g.x[0])
        while pitch % 32 not in (8, 24) if g.data and not g.narrow else pitch // g.chunk % 2 == 0:
            pitch += g.chunk
        return (g.x[0] if g.data else filters) * pitch * g.item

    @property
    def _looks(self) -> int:
        """Columns of x that a warp loads for a row of its unit."""
        g = self.geometry
        return g.x[2] if self.across == g.y[2] else self.across + g.window.kernel[1] - 1

    @property
    def _row_pitch(self) -> int:
        g = self.geometry
        wide = self._turns_across * self.across + g.window.kernel[1] - 1
        return (g.x[2] if self.across == g.y[2] else wide) * g.chunks | 1

    @property
    def tile_bytes(self) -> int:
        """Of the pictures in shared memory."""
        g = self.geometry
        pitch = min(g.x[1], self.band + g.window.kernel[0] - 1) * self._row_pitch
        while self.deep < 8 and pitch % 8 != self.deep % 8:
            pitch += 1
        return self.pictures * pitch * 16

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block: SHARED_BYTES."""
        tile = padded(self.filter_bytes, 16) + self._row_pitch * 16
        behind = tile + (2 if self.ahead else 1) * self.tile_bytes
        sums = tile if self.once and self.units <= self.units_at_once else behind
        partial = (self.split - 1) * self.units_at_once * self.across * self.octets * 512
        return max(behind, sums + partial)

    @property
    def registers(self) -> int:
        """About so many of a thread."""
        return self.octets * (4 * self.across + 2 * self.geometry.window.kernel[1]) + 44

    def groups(self, n: int) -> int:
        """Pairs of pictures and bands."""
        return ceil_div(n, self.pictures) * ceil_div(self.geometry.y[1], self.band)

    def grid(self, n: int, processors: Processors) -> tuple[int, ...]:
        """Blocks that share the groups of pictures, groups of filters."""
        filters = ceil_div(self.geometry.y[0], 8 * self.block_octets)
        groups = self.groups(n)
        if self.once:
            return groups, filters
        return min(groups, max(1, processors.count * self.resident // filters)), filters

    def work(self, n: int, processors: Processors) -> _Work:
        """What the model of the time knows."""
        g = self.geometry
        blocks, filters = self.grid(n, processors)
        steps, width = g.window.kernel[0] * ceil_div(g.chunks, 2), g.window.kernel[1]
        products = steps * self.across * width * self.octets
        return _Work(
            blocks=blocks * filters,
            resident=self.resident,
            threads=self.threads,
            turns=ceil_div(self.groups(n), blocks),
            ahead=self.ahead,
            warps=min(self.units_at_once, self.units) * self.split,
            products=self.units * products,
            serial=ceil_div(self.units, self.units_at_once) * products / self.split,
            matrices=self.units * 4 * steps * (self._looks + width * self.octets / 2),
            tile=self.tile_bytes,
            filters=self.filter_bytes,
            out=self.pictures * self.band * g.y[2] * 8 * self.block_octets * g.item,
            sums=(self.split - 1) * self.across * self.octets * self.units,
        )


@dataclass(frozen=True)
class FilterTiling(_Cut):
    """One way to cut the loops of tensor_filter.cu; ``geometry``: that of forward."""

    rates = FILTER_RATES

    pictures: int
    band: int
    across: int
    sixteens: int
    octets: int
    block_sixteens: int
    block_octets: int
    tap_rows: int
    split: int
    ahead: bool
    resident: int

    @property
    def shape(self) -> tuple[int, ...]:
        """What the tile is, whichever warps share it."""
        blocks = (self.block_sixteens, self.block_octets, self.tap_rows)
        return (self.pictures, self.band, self.across, self.sixteens, self.octets, *blocks)

    @property
    def sound(self) -> bool:
        """Whether units fill the tile."""
        return (
            min(self.pictures, self.band, self.across, self.tap_rows, self.resident) > 0
            and self.block_sixteens % self.sixteens == self.block_octets % self.octets == 0
            and self.units * self.split > 0
        )

    @property
    def units(self) -> int:
        """Warps that share nothing but their pictures."""
        taps = ceil_div(self.geometry.window.kernel[0], self.tap_rows)
        return self.block_sixteens // self.sixteens * (self.block_octets // self.octets) * taps

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.units * self.split

    @property
    def _taps(self) -> int:
        return self.tap_rows * self.geometry.window.kernel[1]

    def _pitch(self, pitch: int) -> int:
        g = self.geometry
        while pitch // 8 % 2 == 0 if g.narrow else pitch % 32 not in (8, 24):
            pitch += g.chunk
        return pitch

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a block: SHARED_BYTES."""
        g = self.geometry
        wide = padded(g.y[2], self.across)
        tall = min(g.x[1], self.band + g.window.kernel[0] - 1)
        x_pitch = self._pitch((wide + g.window.kernel[1] - 1) * 8 * self.block_octets)
        dy_pitch = self._pitch(wide * 16 * self.block_sixteens)
        tiles = (2 if self.ahead else 1) * self.pictures * (tall * x_pitch + self.band * dy_pitch)
        sums = self.units * self._taps * self.sixteens * self.octets * 512
        partial = self.split * (sums + self.block_sixteens * 64) if self.split > 1 else 0
        return max((max(x_pitch, dy_pitch) + tiles) * g.item, partial)

    @property
    def registers(self) -> int:
        """About so many of a thread."""
        return 4 * self.sixteens * (self._taps * self.octets + self.across) + 4 * self.octets + 40

    def groups(self, n: int) -> int:
        """Pairs of pictures and bands."""
        return ceil_div(n, self.pictures) * ceil_div(self.geometry.y[1], self.band)

    def grid(self, n: int, processors: Processors) -> tuple[int, ...]:
        """Slices, groups of filters, groups of channels."""
        filters = ceil_div(self.geometry.y[0], 16 * self.block_sixteens)
        channels = ceil_div(self.geometry.x[0], 8 * self.block_octets)
        most = processors.count * self.resident // (filters * channels)
        slices = min(self.groups(n), most, most_slices(self.geometry, processors))
        return max(1, slices), filters, channels

    def work(self, n: int, processors: Processors) -> _Work:
        """What the model of the time knows."""
        g, (height, width) = self.geometry, self.geometry.window.kernel
        slices, filters, channels = self.grid(n, processors)
        turns_across = ceil_div(g.y[2], self.across)
        items = ceil_div(self.pictures * self.band, 16 if g.narrow else 8) * turns_across
        products = self._taps * self.across * self.sixteens * self.octets
        words = self.across * self.sixteens * 4
        words += self.tap_rows * (self.across + width - 1) * self.octets * 2
        rows_of_x = (self.band + height - 1) * g.x[2] * 8 * self.block_octets
        rows_of_dy = self.band * g.y[2] * 16 * self.block_sixteens
        size = g.y[0] * g.x[0] * g.window.area
        return _Work(
            blocks=slices * filters * channels,
            resident=self.resident,
            threads=self.threads,
            turns=ceil_div(self.groups(n), slices),
            ahead=self.ahead,
            warps=self.units * min(self.split, items),
            products=self.units * items * products,
            serial=ceil_div(items, self.split) * products,
            matrices=self.units * items * words,
            tile=self.pictures * g.item * (rows_of_x + rows_of_dy),
            filters=0,
            # Spread over the turns: slices are written once.
            out=slices * size * 4 / processors.count / max(1, ceil_div(self.groups(n), slices)),
            sums=self.threads // 32 * self._taps * self.sixteens * self.octets
            if self.split > 1
            else 0,
        )


def most_slices(geometry: Geometry, processors: Processors) -> int:
    """So many slices of sums at most, whatever the tiling and the batch."""
    numbers = geometry.y[0] * (geometry.x[0] * geometry.window.area + 1)
    return max(1, min(processors.count, MOST_SLICE_BYTES // (4 * numbers)))


AnyTiling = TypeVar("AnyTiling", Tiling, FilterTiling)


def fits(tiling: Tiling | FilterTiling, processors: Processors) -> bool:
    """Whether a multiprocessor can hold as many blocks as it should, with all that they need."""
    return (
        tiling.sound
        and tiling.threads <= MOST_THREADS
        and tiling.registers <= MOST_REGISTERS
        and tiling.resident * tiling.threads * padded(tiling.registers, 8) <= REGISTERS
        and tiling.shared <= processors.shared_of_block
        and tiling.resident * (tiling.shared + RESERVED) <= processors.shared
    )


@cache
def tilings(geometry: Geometry, n: int, most: int, processors: Processors) -> tuple[Tiling, ...]:
    """The ``most`` promising ways for n pictures, the best first; none if nothing fits."""
    return _best(
        _shapes(geometry, n, processors),
        lambda shape: _variants(shape, n, processors),
        n,
        most,
        processors,
    )


@cache
def filter_tilings(
    geometry: Geometry, n: int, most: int, processors: Processors
) -> tuple[FilterTiling, ...]:
    """As ``tilings``, of the gradient of filters; ``geometry``: that of forward."""
    return _best(_filter_shapes(geometry, n), _filter_variants, n, most, processors)


def _best(
    shapes: Iterable[AnyTiling],
    variants: Callable[[AnyTiling], Iterable[AnyTiling]],
    n: int,
    most: int,
    processors: Processors,
) -> tuple[AnyTiling, ...]:
    """The best variants of the best shapes, few of each."""
    best = _ranked(shapes, n, processors)[:SHAPES]
    kept: list[AnyTiling] = []
    seen: Counter[tuple[int, ...]] = Counter()
    for tiling in _ranked((v for shape in best for v in variants(shape)), n, processors):
        shape = tiling.shape
        if seen[shape] < OF_A_SHAPE and len(kept) < most:
            seen[shape] += 1
            kept.append(tiling)
    return tuple(kept)


def _ranked(every: Iterable[AnyTiling], n: int, processors: Processors) -> list[AnyTiling]:
    found = [
        (tiling.work(n, processors).clocks(processors.count, tiling.rates), at, tiling)
        for at, tiling in enumerate(every)
        if fits(tiling, processors)
    ]
    return [tiling for *_, tiling in sorted(found, key=lambda each: each[:2])]


def _parts(size: int, into: Iterable[int]) -> list[int]:
    """The sizes of the largest of so many parts, without those that another number makes too."""
    return sorted({ceil_div(size, min(parts, size)) for parts in into})


def _across(columns: int, most: int) -> list[int]:
    """Columns of a warp: few, and as many as it can have, without a remainder if that is so."""
    every = [each for each in _parts(columns, range(1, columns + 1)) if 4 <= each <= most]
    return sorted({*every[:1], *every[-2:]}) or [min(columns, most)]


def _shapes(g: Geometry, n: int, processors: Processors) -> Iterator[Tiling]:
    filters, rows, columns = g.y
    octets, steps = ceil_div(filters, 8), _steps(g)
    for deep, wide, bundle in product(
        (1, 2, 4, 8, 16), _across(columns, 16), _parts(octets, (1, 2, 3, 4, 8))
    ):
        together = 16 // deep
        # At most half of a product's rows may be beside the pictures.
        if 4 * wide * bundle > MOST_SUMS or together > max(2, n) or padded(rows, deep) > 2 * rows:
            continue
        for band, groups, times in product(
            sorted({padded(each, deep) for each in _parts(rows, (1, 2, 4, 8))}),
            (1, 2, 4),
            _parts(ceil_div(octets, bundle), (1, 2, 4)),
        ):
            if groups > 1 and together * groups > n:
                continue
            sizes = (together * groups, band, deep, wide, bundle, bundle * times)
            first = Tiling(g, *sizes, 1, 1, True, False, 1)
            at_once = min(first.units, 8)
            split = min(steps, max(1, 5 // at_once))
            yield replace(first, units_at_once=at_once, split=split)


def _steps(g: Geometry) -> int:
    return g.window.kernel[0] * ceil_div(g.chunks, 2)


def _variants(first: Tiling, n: int, processors: Processors) -> Iterator[Tiling]:
    """The same tile by different numbers of warps, and by blocks that take several."""
    many = first.groups(n) * ceil_div(first.geometry.y[0], 8 * first.block_octets)
    modes = [(True, False)]
    if many > processors.count:
        modes += [(False, True), (False, False)]
    for at_once, split in product(
        sorted({min(first.units, each) for each in (1, 2, 4, 6, 8)}), (1, 2, 3, 5, 8)
    ):
        if split > _steps(first.geometry) or not 4 <= at_once * split <= 16:
            continue
        for (once, ahead), resident in product(modes, (1, 2) if many > processors.count else (1,)):
            yield replace(
                first,
                units_at_once=at_once,
                split=split,
                once=once,
                ahead=ahead,
                resident=resident,
            )


def _filter_shapes(g: Geometry, n: int) -> Iterator[FilterTiling]:
    filters, rows, columns = g.y
    octets, sixteens, height = ceil_div(g.x[0], 8), ceil_div(filters, 16), g.window.kernel[0]
    for pictures, band, wide, s, o, tap_rows in product(
        (1, 2, 4, 8),
        _parts(rows, (1, 2, 4, 8)),
        _across(columns, 8),
        (1, 2),
        (1, 2, 4),
        _parts(height, (1, 3) if height > 2 else (1,)),
    ):
        taps = tap_rows * g.window.kernel[1]
        if s > sixteens or o > octets or pictures > n or taps * s * o > 36:
            continue
        if pictures * band < (16 if g.narrow else 8):
            continue
        for bs, bo in product(
            sorted({s, padded(min(sixteens, 2 * s), s), padded(sixteens, s)}),
            sorted({o, padded(octets, o)}),
        ):
            first = FilterTiling(g, pictures, band, wide, s, o, bs, bo, tap_rows, 1, False, 1)
            yield replace(first, split=max(1, 4 // first.units))


def _filter_variants(first: FilterTiling) -> Iterator[FilterTiling]:
    for split, ahead, resident in product((1, 2, 4, 8), (False, True), (1, 2)):
        if 4 <= first.units * split <= 16:
            yield replace(first, split=split, ahead=ahead, resident=resident)
