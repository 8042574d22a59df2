"""How the work of warpgroup_conv.cu and warpgroup_filter.cu may be shared out, the best first."""

from __future__ import annotations

from functools import cache
from itertools import product
from operator import attrgetter

from ....common.records import dataclass
from ..libraries.layout import BFLOAT, ceil_div, padded
from ..libraries.runtime import Processors
from .filter_tilings import most_slices
from .tilings import MOST_SUMS, Cut, Geometry, few_of_each, fits, sizes_of_parts

# Columns of pictures side by side that a warpgroup has at once: rows of a product.
ACROSS = 64
# Columns of a product at most, in octets.
MOST_OCTETS = 32
# Of the model, in clocks, after 16 ways of a 3x3 convolution of 24 and 64 channels on an H200.
# Of tensor cores: for each octet of a product, and at least, for what it reads of shared memory.
# What else a warpgroup does for a row, one after the other: for each octet of filters, each chunk
# of pixels. And a row at least, however few share the processor.
OCTET, LEAST, FILTERS, PIXELS, ROW = 4, 24, 80, 70, 2000


@dataclass(frozen=True)
class WarpgroupTiling(Cut):
    """One way to share out the work of warpgroup_conv.cu."""

    block_octets: int
    warpgroups: int
    depth: int
    resident: int

    @property
    def sound(self) -> bool:
        g = self.geometry
        octets = g.window.kernel[0] * self.block_octets
        return (
            serves(g.dtype, g.x[0], g.window.kernel)
            and min(self.block_octets, self.warpgroups, self.resident) > 0
            and octets <= MOST_OCTETS
            and self.block_octets <= MOST_OCTETS // 2
            and self.depth > 1
        )

    @property
    def pools(self) -> bool:
        """Whether a max-pool's windows of 2 by 2 lie within what a warpgroup has: always."""
        return True

    @property
    def threads(self) -> int:
        return 128 * self.warpgroups

    @property
    def units(self) -> int:
        """Rows of y that are shared out."""
        return self.geometry.y[1]

    @property
    def _steps(self) -> int:
        return ceil_div(self.geometry.window.kernel[1] * self.geometry.chunks, 2)

    @property
    def _line_bytes(self) -> int:
        chunks, line = self.geometry.chunks, ACROSS + self.geometry.window.kernel[1] - 1
        apart = chunks % 8 if chunks % 2 else max(1, 8 // chunks)
        while line % 8 != apart:
            line += 1
        return chunks * line * 16

    @property
    def shared(self) -> int:
        filters = 8 * self.block_octets
        half = (2 * self.geometry.window.kernel[0] - 1) * filters * 16
        lines = self.warpgroups * self.depth * 2 * self._line_bytes
        out = 4 * self.warpgroups * 16 * (self.block_octets | 1) * 16
        return 2 * self._steps * half + filters * 4 + 16 + lines + out

    @property
    def registers(self) -> int:
        """With a max-pool's maxima."""
        return (4 * self.geometry.window.kernel[0] + 2) * self.block_octets + 52

    def _windows(self, n: int) -> int:
        """So many times 64 columns."""
        g = self.geometry
        _, left = g.edges
        right = g.y[2] + g.window.kernel[1] - 1 - left - g.x[2]
        pitch = padded(g.x[2] + max(left, right), 2)
        return ceil_div((n - 1) * pitch + g.y[2], ACROSS)

    def grid(self, n: int, processors: Processors) -> tuple[int, ...]:
        """Blocks that share the rows of y, groups of filters."""
        filters = ceil_div(self.geometry.y[0], 8 * self.block_octets)
        most = ceil_div(self._windows(n) * self.geometry.y[1], self.warpgroups)
        return min(most, max(1, processors.count * self.resident // filters)), filters

    def clocks(self, n: int, processors: Processors) -> float:
        """About so many in all."""
        g = self.geometry
        blocks, filters = self.grid(n, processors)
        height = g.window.kernel[0]
        rows = ceil_div(self._windows(n) * g.y[1], blocks * self.warpgroups)
        # Each way down a picture begins with rows that no row of y is ready with.
        rows += (height - 1) * (1 + ceil_div(rows, g.y[1]))
        products = self._steps * max(LEAST, OCTET * height * self.block_octets)
        work = max(products, FILTERS * self.block_octets + PIXELS * g.chunks)
        resident = min(self.resident, ceil_div(blocks * filters, processors.count))
        return rows * max(ROW, self.warpgroups * resident * work)


def serves(dtype: str, channels: int, kernel: tuple[int, ...]) -> bool:
    """Whether the kernel computes convolutions of so many channels, as stored, by this window."""
    return dtype == BFLOAT and channels % 8 == 0 and kernel[1] * channels > 8


@cache
def warpgroup_tilings(
    geometry: Geometry, n: int, most: int, processors: Processors
) -> tuple[WarpgroupTiling, ...]:
    """The ``most`` promising ways for n pictures, the best first; none if nothing fits."""
    octets, height = ceil_div(geometry.y[0], 8), geometry.window.kernel[0]
    every = [
        WarpgroupTiling(geometry, bundle, warpgroups, depth, resident)
        for bundle, warpgroups, depth, resident in product(
            sizes_of_parts(octets, (1, 2, 3, 4)), (1, 2, 3, 4), (2, 3), (1, 2, 3)
        )
        if 4 * bundle * height <= MOST_SUMS
    ]
    found = (each for each in every if fits(each, processors))
    return tuple(sorted(found, key=lambda each: each.clocks(n, processors))[:most])


# Filters of a block: rows of a product.
FILTER_ROWS = 64
# Of the model, after 14 ways of a 3x3 convolution of 24 and 64 channels on an H200: clocks of a
# tile beside its products, bytes a clock that a multiprocessor reads, and which part of a team's
# own time the others do not fill.
OF_TILE, LOAD, EXPOSED = 500, 10, 0.6
# Ways that are kept of those which differ in their tiles alone.
OF_A_SHAPE = 2


@dataclass(frozen=True)
class WarpgroupFilterTiling(Cut):
    """One way to share out the work of warpgroup_filter.cu; ``geometry``: that of forward."""

    pictures: int
    lines: int
    octets: int
    tap_columns: int
    teams: int
    depth: int
    resident: int

    @property
    def sound(self) -> bool:
        g = self.geometry
        return (
            serves_filters(g.dtype, g.x[0])
            and min(self.pictures, self.lines, self.teams, self.resident) > 0
            and 0 < self.octets <= g.chunks
            and 0 < self.tap_columns <= g.window.kernel[1]
            and self._seen <= MOST_OCTETS
            and self.lines % self._rows == 0
            and self.depth > 1
        )

    @property
    def _seen(self) -> int:
        """Columns of a product, in octets."""
        return self.geometry.window.kernel[0] * self.octets

    @property
    def _across(self) -> int:
        """Octets of a row."""
        return ceil_div(self.geometry.y[2], 8)

    @property
    def _rows(self) -> int:
        """Of a product, as dy lies in memory."""
        return 2 if self._across % 2 else 1

    @property
    def _warpgroups(self) -> int:
        """Of a team."""
        return ceil_div(self.geometry.window.kernel[1], self.tap_columns)

    @property
    def threads(self) -> int:
        return 128 * self._warpgroups * self.teams

    @property
    def units(self) -> int:
        """Products of a warpgroup for each tile, if each column of the window is one of them."""
        return self.pictures * self.lines * self._across // 2

    @property
    def _plane(self) -> int:
        units = 8 * self._across + self._warpgroups * self.tap_columns - 1
        apart = self.octets % 8 if self.octets % 2 else max(1, 8 // self.octets)
        while units % 8 != apart:
            units += 1
        return units * 16

    def _stage(self, even: int) -> int:
        """Bytes of a tile; even: rows and columns of dy for one in memory."""
        rows = self.lines * even + self.geometry.window.kernel[0] - 1
        pixel = (FILTER_ROWS // 8 * even + 1) * 16
        dy = self.lines * self._across * 8 // even * pixel
        return self.pictures * (rows * self.octets * self._plane + dy)

    @property
    def shared(self) -> int:
        sums = FILTER_ROWS * (self.geometry.window.area * 8 * self.octets + 1) * 4
        return self.teams * max(self.depth * max(self._stage(1), self._stage(2)), sums)

    @property
    def registers(self) -> int:
        run, team = self.geometry.y[2] // 2 * FILTER_ROWS // 8, 128 * self._warpgroups
        wide = padded(run, 32)
        rows = ceil_div(self.lines, max(1, team // max(1, wide))) * ceil_div(wide, team)
        return 4 * self.tap_columns * self._seen + 2 * self.pictures * rows + 46

    def groups(self, n: int) -> int:
        """Tiles, unless a line in memory gives two rows."""
        return ceil_div(n, self.pictures) * ceil_div(self.geometry.y[1], self.lines)

    def grid(self, n: int, processors: Processors) -> tuple[int, ...]:
        """Slices, groups of filters, groups of channels."""
        g = self.geometry
        filters, channels = ceil_div(g.y[0], FILTER_ROWS), ceil_div(g.chunks, self.octets)
        most = processors.count * self.resident // (filters * channels)
        slices = min(ceil_div(self.groups(n), self.teams), most, most_slices(g, processors))
        return max(1, slices), filters, channels

    def clocks(self, n: int, processors: Processors) -> float:
        """About so many, from dy itself and from a max-pool's gradient together."""
        slices, filters, channels = self.grid(n, processors)
        g, blocks = self.geometry, slices * filters * channels
        teams = self.teams * min(self.resident, ceil_div(blocks, processors.count))
        product = self.tap_columns * max(LEAST, OCTET * self._seen) * self._warpgroups
        total = 0.0
        for even in (1, 2):
            tiles = ceil_div(n, self.pictures) * ceil_div(max(1, g.y[1] // even), self.lines)
            busy = self.units * even * product
            own = busy + OF_TILE
            rows = self.lines * even + g.window.kernel[0] - 1
            # With its place a maximum's gradient has three bytes.
            dy = self.lines * (g.y[2] // even) * FILTER_ROWS * (1 + even)
            read = self.pictures * (2 * rows * g.x[2] * 8 * self.octets + dy)
            one = max(own, teams * busy, teams * read / LOAD) + EXPOSED * own / teams
            total += ceil_div(tiles, slices * self.teams) * one
        return total


def serves_filters(dtype: str, channels: int) -> bool:
    """Whether the kernel computes the gradient for so many channels of x, as stored."""
    return dtype == BFLOAT and channels % 8 == 0


@cache
def warpgroup_filter_tilings(
    geometry: Geometry, n: int, most: int, processors: Processors
) -> tuple[WarpgroupFilterTiling, ...]:
    """The ``most`` promising ways for n pictures, the best first; none if nothing fits."""
    width, rows = geometry.window.kernel[1], geometry.y[1]
    every = [
        WarpgroupFilterTiling(geometry, pictures, lines, octets, columns, teams, depth, resident)
        for lines, pictures, octets, columns, teams, depth, resident in product(
            [each for each in (1, 2, 3, 4, 5, 6, 8) if each <= rows + 1],
            [each for each in (1, 2, 4) if each <= n],
            sizes_of_parts(geometry.chunks, (1, 2, 4)),
            sizes_of_parts(width, (1, 2, 3, 5)),
            (1, 2, 3, 4),
            (2,),
            (1, 2),
        )
    ]
    found = [each for each in every if fits(each, processors)]
    found.sort(key=lambda way: way.clocks(n, processors))
    shape = attrgetter("octets", "tap_columns", "teams", "resident")
    return few_of_each(found, shape, OF_A_SHAPE)[:most]
