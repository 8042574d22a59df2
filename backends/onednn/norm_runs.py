"""Averages by channel in float32 with the error of a few roundings.

The library's batch norm adds up all values of a channel one after the other. So it is given each
piece of a batch as one sample of many more channels, every one a short run of a channel's values,
and finds a number of each run. Of these it makes averages in the same way, until each channel has
one. A piece stays in a core's cache, so that several passes read main memory once.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from ...graph.ops import BatchNorm, BatchNormBackward
from ..base import Array
from .bind import Binder
from .constants import BACKWARD, BINARY, FORWARD_TRAINING
from .library import library
from .memory import Descriptor, Memory
from .primitive import PrimitiveDesc, first_fast
from .sums import layout_name

Norm = BatchNorm | BatchNormBackward
# Bytes of a piece for each thread, whose cache has room for as many that are discarded. The start
# and end of a call by several are worth fewer calls, unless a piece has just been written.
PIECE_BYTES, SHARED_PIECE_BYTES = 1 << 19, 1 << 20
# Values that are added up one after the other: errors of more are beyond the bounds of
# test_precision.py. Then numbers in a group of runs, and numbers by run with channels
# last, so that they stay in the innermost cache.
BESIDE, GROUP, ROW = 64, 16, 2048


class Runs:
    """Pieces of a layout, each seen as (1, runs, length, 1): some whole samples or, with channels
    last, some rows of pixels.

    A piece's runs, in the order of memory, are (rows, blocks, runs side by side, lanes); blocks and
    lanes together are the channels, those included that only fill up a block. ``written``: whether
    the pieces are written one by one before. Raises NoFastKernel where the library lacks what
    ``averages`` takes.
    """

    def __init__(self, b: Binder, op: Norm, layout: Descriptor, written: bool = False) -> None:
        self.b, self.op = b, op
        n, c, pixels = layout.shape[0], layout.shape[1], prod(layout.shape[2:])
        name = self.layout = layout_name(layout)
        vector = library().lanes()
        if name == "nhwc":
            # Of few values, too, 16 runs: roundings of their means are to average out.
            length = _length(n * pixels, c, min(BESIDE, max(1, n * pixels // 16)))
            self.count, rows = _rows(n * pixels // length, c)
            self.shape = (rows, 1, 1, c)
        else:
            threads = library().threads()
            alone = threads == 1 or written
            piece = threads * (PIECE_BYTES if alone else SHARED_PIECE_BYTES)
            most = max(1, piece * n // layout.nbytes)
            each = max(k for k in range(1, n + 1) if n % k == 0 and k <= most)
            self.count = n // each
            # In blocks of channels the kernel for AVX-512 adds up four runs in one.
            blocked = 4 * BESIDE if library().has_avx512() else BESIDE
            if name == "nchw":
                # A vector of pixels is a block of runs.
                name, vector = (f"nChw{vector}c", vector) if pixels % vector == 0 else (name, 1)
                length = _length(pixels // vector, vector, blocked if vector > 1 else BESIDE)
                self.shape = (each, c, pixels // length, 1)
            else:
                lanes = int(name[4:-1])
                length = _length(pixels, vector, blocked)
                self.shape = (each, -(-c // lanes), pixels // length, lanes)
        self.length, self.runs, self.channels = length, prod(self.shape), c
        self.piece = Descriptor.of((1, self.runs, length, 1), name)
        self.numbers = Descriptor.of((self.runs,))
        # What the library spreads a channel's value over: in whole blocks of channels the layout as
        # it is. Elsewhere it is slow at that, and takes another channel's for a single pixel.
        self.by_channel = self.layout.startswith("nChw") and c % self.shape[3] == 0 and pixels > 1
        # Its batch norm is not slow with channels last.
        whole = self.layout == "nhwc" and c % library().lanes() == 0 and pixels > 1
        self.even = self.by_channel or whole
        apart = Descriptor.of((self.count, self.runs, length, 1), name)
        self.wide, self.parts = layout if self.by_channel else apart, 1
        if self.by_channel and library().threads() > 1:
            # In pieces again, so that each thread writes what it has read: in place of what another
            # has in its cache takes up to four times as long.
            several = (self.shape[0], *layout.shape[1:])
            self.wide, self.parts = Descriptor.of(several, self.layout), self.count
        self.normal = layout if self.even else apart
        self.thin = Descriptor.of((1, self.wide.shape[1], 1, 1), name)
        # How runs of a channel are averaged: in groups of rows, then all that are left.
        _, blocks, beside, lanes = self.shape
        rows, row = self.count * self.shape[0], blocks * beside * lanes
        self.groups: list[PrimitiveDesc] = []
        # The last chain may be as long as one sum: without AVX-512 the library has one, not four.
        chain = BESIDE if library().has_avx512() else 2 * GROUP
        while rows * beside > chain and 1 < (group := _length(rows, row, GROUP)) <= GROUP:
            rows //= group
            self.groups.append(normalization(Descriptor.of((1, rows * row, group, 1), "nhwc")))
        left = Descriptor.of((rows, c, beside, 1), self.layout)
        self.last, self.rest, self.left = normalization(left), sums_of(left), rows * beside

    def of(self, memory: Memory, at: int) -> Memory:
        """Piece number ``at`` of a memory in the layout."""
        size = self.piece.nbytes
        return Memory(self.piece, memory.buffer[at * size : (at + 1) * size])

    def part(self, memory: Memory, at: int) -> Memory:
        """Part number ``at``, of ``parts``, of a memory in the layout."""
        return Memory(self.wide, memory.buffer[at * self.wide.nbytes :])

    @property
    def number(self) -> int:
        """Runs of a channel in all pieces."""
        return self.count * self.shape[0] * self.shape[2]

    def by_run(self, kinds: int) -> tuple[list[Memory], Array, Callable[[], None]]:
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

    def found(self) -> tuple[Memory, list[Memory], list[Memory]]:
        """Scratch for two numbers per run: all of it, and of each kind its part for each piece."""
        whole = self.b.scratch(Descriptor.of((2 * self.count * self.runs,)))
        parts = [Memory(self.numbers, part) for part in whole.buffer.reshape(2 * self.count, -1)]
        return whole, parts[: self.count], parts[self.count :]

    def averages(self, numbers: Memory, variance: bool = False) -> tuple[Memory, Memory]:
        """Append what averages two numbers per run by channel; returns the averages, (2, channels),
        and what is still to be added to each.

        With ``variance`` the two are means and variances of runs: that of all values is the average
        of the variances and the variance of the means (Chan et al., "Algorithms for computing the
        sample variance", 1983).
        """
        for desc in (*self.groups, self.last):
            size, source = desc.descriptor("mean"), desc.descriptor("src")
            averages, terms = (self.b.scratch(Descriptor.of((2, *size.shape))) for _ in (0, 1))
            average, term = halves(averages, size), halves(terms, size)
            values = halves(numbers, source)
            for kind in (0, 1):
                # The variance of means is a term of the other kind, the average of variances.
                results = {"mean": average[kind], "variance": term[1 - kind]}
                ends = {"src": values[kind], "dst": self.discarded(source)}
                self.b.primitive(self.op, desc, {**ends, **results})
            if variance and desc is not self.last:
                self.add(average[1], term[1])
            numbers = averages
        # As good as float64 has it is an average once that of all differences from it is added: the
        # sum times the inverse root of the variance, which makes nothing of a sum of 0.
        ends = {"diff_dst": self.b.constant(source, 1.0), "diff_src": self.discarded(source)}
        ends["variance"] = self.b.constant(size, float(self.left**2))
        ends["scale"] = self.b.constant(size, 1.0)
        for kind in (0,) if variance else (0, 1):
            results = {"diff_scale": term[kind], "diff_shift": self.b.scratch(size)}
            given = {"src": values[kind], "mean": average[kind]}
            self.b.primitive(self.op, self.rest, {**ends, **given, **results})
        return averages, terms

    def add(self, to: Memory, term: Memory) -> None:
        """Append to += term."""
        size = to.descriptor
        add = PrimitiveDesc("binary", BINARY["add"], size, size, size, None)
        self.b.primitive(self.op, add, {"src": to, "src_1": term, "dst": to})

    def discarded(self, layout: Descriptor) -> Memory:
        """Memory for what nobody reads.

        It begins within a vector: on aligned memory the kernel would write past the caches.
        """
        offset = 2 * library().lanes()
        whole = self.b.temporary(Descriptor.of((offset // 4 + layout.nbytes // 4,)))
        return Memory(layout, whole.buffer[offset:])


def halves(pair: Memory, each: Descriptor) -> tuple[Memory, Memory]:
    """A memory's two parts of this size."""
    first, second = (pair.buffer[at * each.nbytes : (at + 1) * each.nbytes] for at in (0, 1))
    return Memory(each, first), Memory(each, second)


def norm_flags(
    given: bool = False, scale: bool = False, shift: bool = False, relu: bool = False
) -> int:
    """Of batch norm: its statistics are given, and it has a scale, a shift, a ReLU behind it."""
    return given | scale << 1 | shift << 2 | relu << 3


def normalization(
    layout: Descriptor, prop: int = FORWARD_TRAINING, eps: float = 1.0, flags: int = 0
) -> PrimitiveDesc:
    """Batch norm of the library; where statistics alone are wanted, eps = 1 keeps all finite."""
    arguments = (prop, layout, layout, eps, flags, None)
    return first_fast("batch_normalization_forward", [arguments], {"src": layout})


def sums_of(layout: Descriptor, relu: bool = False) -> PrimitiveDesc:
    """The sums over (x - mean) g by channel and over g, with variance 1 and scale 1."""
    flags = norm_flags(True, True, True, relu)
    hint = normalization(layout, FORWARD_TRAINING, 0.0, flags)
    arguments = (BACKWARD, layout, layout, layout, 0.0, flags, hint, None)
    return first_fast("batch_normalization_backward", [arguments], {"src": layout})


def _rows(rows: int, channels: int) -> tuple[int, int]:
    """How many pieces, and rows of each: whole vectors, if possible, of up to ROW numbers."""
    divisors = [k for k in range(1, rows + 1) if rows % k == 0]
    whole = [k for k in divisors if k * channels % library().lanes() == 0] or divisors
    each = max((k for k in whole if k * channels <= ROW), default=whole[0])
    return rows // each, each


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
