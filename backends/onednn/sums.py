"""Sums over all axes but the channels, in which no float32 adds up more than a few terms.

One term after the other, 100,000 values lose three digits, and more where most of them are alike.
Average pooling of ``SHORT`` neighbours at a time reads memory as fast as anything does; when a few
thousand numbers are left, NumPy adds them in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...common.records import dataclass
from ...graph.graph import Op
from .bind import Binder
from .constants import AVERAGE_WITH_PADDING, FORWARD_INFERENCE
from .library import Dims
from .memory import LAYOUTS, Descriptor, Memory
from .primitive import NoFastKernel, PrimitiveDesc, first_fast

SHORT = 16
FEW = 4096


@dataclass(frozen=True)
class Lines:
    """Memory as (samples, blocks, rows, lanes), row-major, of which rows and samples are summed.

    A number's channel follows from its block and its lane: ``kind`` "blocked" has ``lanes``
    channels a block, "first" one channel a block, "last" all channels side by side, some times
    over. ``weight``: of how many values each number is the mean.
    """

    kind: str
    channels: int
    samples: int
    blocks: int
    rows: int
    lanes: int
    weight: int = 1

    @classmethod
    def of(cls, layout: Descriptor) -> Lines:
        """The lines of a picture's layout in float32, or of flat samples'."""
        shape = layout.shape
        n, c, pixels = shape[0], shape[1], prod(shape[2:])
        name = layout_name(layout)
        if name.startswith("nChw"):
            block = int(name[4:-1])
            return cls("blocked", c, n, -(-c // block), pixels, block)
        if name == "nchw" and c > 1:
            lanes = 16 if pixels % 16 == 0 else pixels
            return cls("first", c, n, c, pixels // lanes, lanes)
        # Rows of a multiple of 16 numbers, if as many fit into the picture.
        several = next((k for k in (1, 2, 4, 8, 16) if k * c % 16 == 0), 1)
        several = several if pixels % several == 0 else 1
        return cls("last", c, n, 1, pixels // several, several * c)

    @property
    def size(self) -> int:
        return self.samples * self.blocks * self.rows * self.lanes

    def pooled(self) -> tuple[tuple[int, int, int], Lines]:
        """What one pooling makes of it, and what it sees: (planes, terms in a line, lanes)."""
        if self.rows >= SHORT // 2 or self.samples == 1:
            window = min(SHORT, self.rows)
            after = replace(self, rows=-(-self.rows // window), weight=self.weight * window)
            return (self.samples * self.blocks, self.rows, self.lanes), after
        window = min(SHORT, self.samples)
        after = replace(self, samples=-(-self.samples // window), weight=self.weight * window)
        return (1, self.samples, self.blocks * self.rows * self.lanes), after

    def total(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """The sums by channel of what is left; numbers: (size,) float32 -> (channels,)."""
        wide = numbers.astype(np.float64)
        if self.rows > 1:
            planes = self.samples * self.blocks
            wide = np.add.reduce(wide.reshape(planes, self.rows, self.lanes), 1)
        whole = np.add.reduce(wide.reshape(self.samples, self.blocks * self.lanes), 0)
        whole *= self.weight
        if self.kind == "blocked":
            return np.asarray(whole[: self.channels])
        if self.kind == "first":
            return np.asarray(whole.reshape(self.blocks, self.lanes).sum(1))
        return np.asarray(whole.reshape(-1, self.channels).sum(0))


def layout_name(layout: Descriptor) -> str:
    """The name of a layout of pictures; flat samples are pictures of one pixel."""
    if len(layout.shape) != 4:
        return "nhwc"
    dtype = layout.dtype
    return next(n for n in LAYOUTS if Descriptor.of(layout.shape, n, dtype) == layout)


def _desc(seen: tuple[int, int, int]) -> PrimitiveDesc:
    planes, terms, lanes = seen
    window = min(SHORT, terms)
    count = -(-terms // window)
    source = Descriptor.of((planes, lanes, 1, terms), "nhwc")
    target = Descriptor.of((planes, lanes, 1, count), "nhwc")
    slide = (Dims(1, window), Dims(1, window), Dims(0, 0), Dims(0, 0))
    beyond = Dims(0, count * window - terms)
    arguments = (FORWARD_INFERENCE, AVERAGE_WITH_PADDING, source, target, *slide, beyond, None)
    return first_fast("pooling_forward", [arguments], {"terms": terms})


def pool(
    b: Binder, op: Op, source: NDArray[np.uint8], lines: Lines, target: Memory | None = None
) -> tuple[Memory, Lines]:
    """Append one pooling of a buffer, into the first bytes of ``target`` if that is given."""
    seen, after = lines.pooled()
    if target is None:
        target = b.scratch(Descriptor.of((after.size,)))
    try:
        desc = _desc(seen)
    except NoFastKernel:
        return _by_numpy(b, op, source, seen, after, target)
    memories = {
        "src": Memory(desc.descriptor("src"), source),
        "dst": target.view(desc.descriptor("dst")),
    }
    b.primitive(op, desc, memories, {"sums of": str(min(SHORT, seen[1]))})
    return target, after


def _by_numpy(
    b: Binder,
    op: Op,
    source: NDArray[np.uint8],
    seen: tuple[int, int, int],
    after: Lines,
    target: Memory,
) -> tuple[Memory, Lines]:
    planes, terms, lanes = seen
    window = min(SHORT, terms)
    values = source[: 4 * planes * terms * lanes].view(np.float32).reshape(seen)
    means = target.array()[: after.size].reshape(planes, -1, lanes)
    starts = np.arange(0, terms, window)

    def run() -> None:
        np.divide(np.add.reduceat(values, starts, 1), window, out=means)

    b.host(op, run, "add", {"sums of": str(window)})
    return target, after


def summed(
    b: Binder, op: Op, source: NDArray[np.uint8], lines: Lines
) -> Callable[[], NDArray[np.float64]]:
    """Append what makes a buffer few numbers; returns what adds these up, to (channels,)."""
    while lines.size > FEW and max(lines.rows, lines.samples) > 1:
        memory, lines = pool(b, op, source, lines)
        source = memory.buffer
    numbers = source[: 4 * lines.size].view(np.float32)
    return lambda: lines.total(numbers)


def sum_into(b: Binder, op: Op, source: Memory, target: Memory) -> None:
    """Append target = the sums of a float32 memory over all axes but 1; target: (C,)."""
    total, result = summed(b, op, source.buffer, Lines.of(source.descriptor)), target.array()

    def run() -> None:
        result[:] = total()

    b.host(op, run, "add", {"channels": str(len(result))})
