"""Averages by channel in float32 with the error of a few roundings.

The library's batch norm adds up all values of a channel one after the other. So it is given each
piece of a batch as one sample of many more channels, every one a short run of a channel's values,
and finds a number of each run. Of these it makes averages in the same way, until each channel has
one. A piece stays in a core's cache, so that several passes read main memory once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graph.ops import BatchNorm, BatchNormBackward
from .bind import Binder, attempt
from .constants import BINARY_ADD, DST, FORWARD_TRAINING, MEAN, SRC, SRC_1, VARIANCE
from .library import library
from .memory import Descriptor, Memory
from .primitive import PrimitiveDesc
from .sums import layout_name

Array = NDArray[Any]
Norm = BatchNorm | BatchNormBackward
Kinds = tuple[NDArray[np.uint8], NDArray[np.uint8]]
# Bytes of a piece for each thread.
PIECE_BYTES = 1 << 20
# Values that are added up one after the other: errors of more are beyond the bounds of
# test_precision.py. Then numbers in a group of runs, and how many are left to the host.
BESIDE, GROUP, FEW = 64, 16, 2048


class Runs:
    """Pieces of some whole samples of a layout, each seen as (1, runs, length, 1).

    A piece's runs, in the order of memory, are (rows, blocks, runs side by side, lanes); blocks and
    lanes together are the channels, those included that only fill up a block.
    """

    def __init__(self, b: Binder, op: Norm, layout: Descriptor) -> None:
        self.b, self.op = b, op
        n, c, pixels = layout.shape[0], layout.shape[1], prod(layout.shape[2:])
        most = max(1, PIECE_BYTES * library().threads() * n // layout.nbytes)
        each = max(k for k in range(1, n + 1) if n % k == 0 and k <= most)
        name = self.layout = layout_name(layout)
        # In blocks of channels the kernel for AVX-512 adds up four runs in one.
        vector, blocked = library().lanes(), 4 * BESIDE if library().has_avx512() else BESIDE
        self.count, self.channels = n // each, c
        if name.startswith("nChw"):
            lanes = int(name[4:-1])
            length = _length(pixels, vector, blocked)
            self.shape = (each, -(-c // lanes), pixels // length, lanes)
        elif name == "nchw":
            # A vector of pixels is a block of runs.
            name, vector = (f"nChw{vector}c", vector) if pixels % vector == 0 else (name, 1)
            length = _length(pixels // vector, vector, blocked if vector > 1 else BESIDE)
            self.shape = (each, c, pixels // length, 1)
        else:
            # Of few values, too, 16 runs: roundings of their means are to average out.
            length = _length(each * pixels, c, min(BESIDE, max(1, n * pixels // 16)))
            self.shape = (each * pixels // length, 1, 1, c)
        self.length, self.runs = length, prod(self.shape)
        self.piece = Descriptor.of((1, self.runs, length, 1), name)
        self.numbers = Descriptor.of((self.runs,))
        # What the library spreads a channel's value over: in whole blocks of channels the piece as
        # it is. Elsewhere it is slow at that, and takes another channel's for a single pixel.
        self.by_channel = self.layout.startswith("nChw") and c % self.shape[3] == 0 and pixels > 1
        whole = Descriptor.of((each, *layout.shape[1:]), self.layout)
        self.wide = whole if self.by_channel else self.piece
        self.thin = Descriptor.of((1, self.wide.shape[1], 1, 1), name)
        # How runs of a channel are averaged: in groups of rows, then all that are left.
        _, blocks, beside, lanes = self.shape
        rows, row = self.count * self.shape[0], blocks * beside * lanes
        self._groups: list[PrimitiveDesc] = []
        while rows * row > FEW and (group := _length(rows, row, GROUP)) > 1:
            desc = normalization(Descriptor.of((1, rows // group * row, group, 1), "nhwc"))
            if desc is None:
                break
            self._groups.append(desc)
            rows //= group
        self._left = (rows, blocks, beside, lanes)
        self.last = normalization(Descriptor.of((rows, c, beside, 1), self.layout))

    def of(self, memory: Memory, at: int) -> Memory:
        """Piece number ``at`` of a memory in the layout."""
        size = self.piece.nbytes
        return Memory(self.piece, memory.buffer[at * size : (at + 1) * size])

    @property
    def number(self) -> int:
        """Runs of a channel in all pieces."""
        return self.count * self.shape[0] * self.shape[2]

    def by_run(self, kinds: int) -> tuple[list[Memory], NDArray[Any], Callable[[], None]]:
        """Scratch for this many kinds of a number per run, the same for all runs of a channel.

        The function fills it from the array, (kinds, channels).
        """
        whole = self.b.scratch(Descriptor.of((kinds * self.runs,)))
        _, blocks, _, lanes = self.shape
        padded = np.zeros((kinds, blocks * lanes), np.float32)
        seen = whole.array().reshape(kinds, *self.shape)
        each = padded.reshape(kinds, 1, blocks, 1, lanes)

        def fill() -> None:
            seen[...] = each

        parts = whole.buffer.reshape(kinds, -1)
        return [Memory(self.numbers, part) for part in parts], padded[:, : self.channels], fill

    def found(self) -> tuple[Memory, list[Memory]]:
        """Scratch for a number per run: all of it, and its part for each piece."""
        whole = self.b.scratch(Descriptor.of((self.count * self.runs,)))
        parts = whole.buffer.reshape(self.count, -1)
        return whole, [Memory(self.numbers, part) for part in parts]

    def averages(
        self, numbers: tuple[Memory, Memory], target: Array, variance: Memory | None = None
    ) -> Callable[[], None]:
        """Append what averages two numbers per run by channel; then comes what is returned.

        target: (2, channels), float64. With ``variance`` the two are means and variances of runs,
        and that, (channels,), becomes the variance of their means: the second average lacks it to
        be that of all values (Chan et al., "Algorithms for computing the sample variance", 1983).
        """
        whole = numbers[0].buffer, numbers[1].buffer
        for desc in self._groups:
            whole = self._grouped(desc, whole, variance is not None)
        if variance is not None:
            assert self.last
            unused = self.b.scratch(variance.descriptor)
            self._statistics(self.last, whole[0], unused, variance)
        rows, blocks, beside, lanes = self._left
        parts = [part.view(np.float32).reshape(self._left) for part in whole]
        sums, share = np.zeros((blocks, lanes)), 1.0 / (rows * beside)

        def run() -> None:
            for part, averages in zip(parts, target, strict=True):
                np.add.reduce(part, (0, 2), np.float64, out=sums)
                np.multiply(sums.ravel()[: self.channels], share, out=averages)

        return run

    def _grouped(self, desc: PrimitiveDesc, kinds: Kinds, variance: bool) -> Kinds:
        """Append averages over groups of rows; with ``variance`` the groups' own, too."""
        size = desc.descriptor(MEAN)
        means = self.b.scratch(size), self.b.scratch(size)
        variances = self.b.scratch(size), self.b.scratch(size)
        for kind in (0, 1):
            self._statistics(desc, kinds[kind], means[kind], variances[kind])
        if variance:
            add = PrimitiveDesc("binary", BINARY_ADD, size, size, size, None)
            ends = {SRC: means[1], SRC_1: variances[0], DST: means[1]}
            self.b.primitive(self.op, add, ends)
        return means[0].buffer, means[1].buffer

    def _statistics(
        self, desc: PrimitiveDesc, source: NDArray[np.uint8], mean: Memory, variance: Memory
    ) -> None:
        layout = desc.descriptor(SRC)
        ends = {SRC: Memory(layout, source), DST: self.b.temporary(layout)}
        self.b.primitive(self.op, desc, {**ends, MEAN: mean, VARIANCE: variance})


def normalization(
    layout: Descriptor, prop: int = FORWARD_TRAINING, eps: float = 1.0, flags: int = 0
) -> PrimitiveDesc | None:
    """Batch norm of the library; where statistics alone are wanted, eps = 1 keeps all finite."""
    arguments = (prop, layout, layout, eps, flags, None)
    return attempt("batch_normalization_forward", [lambda: arguments], {"src": layout})


def _length(values: int, side_by_side: int, most: int) -> int:
    """The length of the runs that ``values`` are cut into: up to ``most`` or a few more, not short.

    Runs side by side are whole vectors, if possible.
    """
    vector = library().lanes()
    lengths = [k for k in range(1, min(values, 4 * most) + 1) if values % k == 0]
    whole = [k for k in lengths if values // k * side_by_side % vector == 0]
    lengths = whole or lengths
    short = max((k for k in lengths if k <= most), default=lengths[0])
    longer = min((k for k in lengths if k > most), default=short)
    return longer if short < most // 8 else short
