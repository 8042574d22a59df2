"""How weights.cuh may share out its product: the most promising ways first.

The names are those of the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

from ....common.records import dataclass
from ..libraries.kernels import THREADS
from ..libraries.layout import ceil_div
from ..libraries.runtime import Processors
from .dense_tilings import CACHED_RATE, LATENCY, LAUNCH, RATE, DenseGeometry, ProductTiling
from .tilings import RESERVED, few_of_each

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
    fitting = [each for each in _every(geometry) if each.shared <= room]
    fitting.sort(key=lambda each: each.clocks(processors))
    # The model says less of how a shape is cut than of the shapes.
    few = OF_A_SHAPE if most <= len(fitting) else most
    return few_of_each(fitting, lambda each: each.sides, few)[:most]


def _every(g: DenseGeometry) -> Iterator[UpdateTiling]:
    for down, across, split in product((1, 2, 4), (1, 2, 4), (1, 2, 4, 8)):
        turns = ceil_div(g.depth, SHARE * split)
        for stages in sorted({min(turns, each) for each in (2, 4, 8, turns)}):
            found = UpdateTiling(g, down, across, split, stages)
            # No warp without work of its own.
            beside = (down - 1) * SIDE < g.rows and (across - 1) * SIDE < g.columns
            if found.sound and beside and split < 2 * ceil_div(g.depth, SHARE):
                yield found
