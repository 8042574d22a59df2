"""How the loops of tensor_filter.cu may be cut: the most promising ways first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from ....common.records import dataclass
from ..libraries.layout import BFLOAT, ceil_div, padded
from ..libraries.runtime import Processors
from .tilings import Geometry, Modelled, Rates, Work, best, columns_of_a_warp, sizes_of_parts

# Fitted to 1,299 ways.
RATES = Rates(4760, 21.8, 2.0, 2.14, 1.0, 3230, 12.4, 5.7, 11.1, 3.05)
# Bytes of the slices of one gradient.
MOST_SLICE_BYTES = 8 << 20


@dataclass(frozen=True)
class FilterTiling(Modelled):
    """One way to cut the loops of tensor_filter.cu; ``geometry``: that of forward."""

    rates = RATES

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
        blocks = (self.block_sixteens, self.block_octets, self.tap_rows)
        return (self.pictures, self.band, self.across, self.sixteens, self.octets, *blocks)

    @property
    def sound(self) -> bool:
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
        return 32 * self.units * self.split

    @property
    def _taps(self) -> int:
        return self.tap_rows * self.geometry.window.kernel[1]

    def _pitch(self, pitch: int) -> int:
        g = self.geometry
        while pitch // 8 % 2 == 0 if g.dtype == BFLOAT else pitch % 32 not in (8, 24):
            pitch += g.chunk
        return pitch

    @property
    def shared(self) -> int:
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

    def work(self, n: int, processors: Processors) -> Work:
        g, (height, width) = self.geometry, self.geometry.window.kernel
        slices, filters, channels = self.grid(n, processors)
        turns_across = ceil_div(g.y[2], self.across)
        items = ceil_div(self.pictures * self.band, 16 if g.dtype == BFLOAT else 8) * turns_across
        products = self._taps * self.across * self.sixteens * self.octets
        words = self.across * self.sixteens * 4
        words += self.tap_rows * (self.across + width - 1) * self.octets * 2
        rows_of_x = (self.band + height - 1) * g.x[2] * 8 * self.block_octets
        rows_of_dy = self.band * g.y[2] * 16 * self.block_sixteens
        size = g.y[0] * g.x[0] * g.window.area
        return Work(
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


@cache
def filter_tilings(
    geometry: Geometry, n: int, most: int, processors: Processors, neighbours: bool = False
) -> tuple[FilterTiling, ...]:
    """As ``tilings``, of the gradient of filters; ``geometry``: that of forward.

    ``neighbours``: those that share a processor with another block, alone.
    """
    shapes = _filter_shapes(geometry, n)
    if neighbours:
        pairs = (replace(each, resident=2) for each in shapes)
        return best(pairs, _neighbours, n, most, processors)
    return best(shapes, _filter_variants, n, most, processors)


def _filter_shapes(g: Geometry, n: int) -> Iterator[FilterTiling]:
    filters, rows, columns = g.y
    octets, sixteens, height = ceil_div(g.x[0], 8), ceil_div(filters, 16), g.window.kernel[0]
    for pictures, band, wide, s, o, tap_rows in product(
        (1, 2, 4, 8),
        sizes_of_parts(rows, (1, 2, 4, 8)),
        columns_of_a_warp(columns, 8),
        (1, 2),
        (1, 2, 4),
        sizes_of_parts(height, (1, 3) if height > 2 else (1,)),
    ):
        taps = tap_rows * g.window.kernel[1]
        if s > sixteens or o > octets or pictures > n or taps * s * o > 36:
            continue
        if pictures * band < (16 if g.dtype == BFLOAT else 8):
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


def _neighbours(first: FilterTiling) -> Iterator[FilterTiling]:
    return (each for each in _filter_variants(first) if each.resident > 1)
