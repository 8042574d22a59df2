"""How the work of warpgroup_conv.cu may be shared out: the most promising ways first."""

from __future__ import annotations

from functools import cache
from itertools import product

from ....common.records import dataclass
from ..libraries.layout import BFLOAT, ceil_div, padded
from ..libraries.runtime import Processors
from .tilings import MOST_SUMS, Cut, Geometry, fits, sizes_of_parts

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
