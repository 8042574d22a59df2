"""How the loops of tensor_conv.cu may be cut: the most promising ways first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

from ....common.records import dataclass
from ..libraries.layout import BFLOAT, ceil_div, padded
from ..libraries.runtime import Processors
from .tilings import (
    MOST_SUMS,
    Geometry,
    Modelled,
    Rates,
    Work,
    best,
    columns_of_a_warp,
    sizes_of_parts,
)

# Fitted to 2,099 ways.
RATES = Rates(3230, 50.0, 0.93, 1.0, 6.2, 2380, 7.7, 20.2, 6.8, 0.69)


@dataclass(frozen=True)
class Tiling(Modelled):
    """One way to cut the loops of tensor_conv.cu."""

    rates = RATES

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
        sizes = (self.pictures, self.band, self.deep, self.across)
        return (*sizes, self.octets, self.block_octets)

    @property
    def sound(self) -> bool:
        return (
            min(self.pictures, self.band, self.across, self.resident) > 0
            and 16 % self.deep == self.pictures % (16 // self.deep) == self.band % self.deep == 0
            and self.block_octets % self.octets == 0
            and self.units_at_once * self.split > 0
        )

    @property
    def pools(self) -> bool:
        """Whether a warp has both pixels of every side of windows of 2 by 2."""
        return self.across % 2 == self.deep % 2 == 0

    @property
    def threads(self) -> int:
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
        while (
            pitch % 32 not in (8, 24) if g.data and g.dtype != BFLOAT else pitch // g.chunk % 2 == 0
        ):
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
        tile = padded(self.filter_bytes, 16) + self._row_pitch * 16
        behind = tile + (2 if self.ahead else 1) * self.tile_bytes
        sums = tile if self.once and self.units <= self.units_at_once else behind
        partial = (self.split - 1) * self.units_at_once * self.across * self.octets * 512
        return max(behind, sums + partial)

    @property
    def bytes_of_sums(self) -> int:
        """Of shared memory besides, where every warp sums up its filters: channel_sums.cuh."""
        return self.threads // 32 * 8 * self.block_octets * 24

    @property
    def registers(self) -> int:
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

    def work(self, n: int, processors: Processors) -> Work:
        g = self.geometry
        blocks, filters = self.grid(n, processors)
        steps, width = g.window.kernel[0] * ceil_div(g.chunks, 2), g.window.kernel[1]
        products = steps * self.across * width * self.octets
        return Work(
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


@cache
def tilings(geometry: Geometry, n: int, most: int, processors: Processors) -> tuple[Tiling, ...]:
    """The ``most`` promising ways for n pictures, the best first; none if nothing fits."""
    return best(
        _shapes(geometry, n, processors),
        lambda shape: _variants(shape, n, processors),
        n,
        most,
        processors,
    )


def _shapes(g: Geometry, n: int, processors: Processors) -> Iterator[Tiling]:
    filters, rows, columns = g.y
    octets, steps = ceil_div(filters, 8), _steps(g)
    for deep, wide, bundle in product(
        (1, 2, 4, 8, 16), columns_of_a_warp(columns, 16), sizes_of_parts(octets, (1, 2, 3, 4, 8))
    ):
        together = 16 // deep
        # At most half of a product's rows may be beside the pictures.
        if 4 * wide * bundle > MOST_SUMS or together > max(2, n) or padded(rows, deep) > 2 * rows:
            continue
        for band, groups, times in product(
            sorted({padded(each, deep) for each in sizes_of_parts(rows, (1, 2, 4, 8))}),
            (1, 2, 4),
            sizes_of_parts(ceil_div(octets, bundle), (1, 2, 4)),
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
                first, units_at_once=at_once, split=split, once=once, ahead=ahead, resident=resident
            )
