"""Convolutions of pictures with few channels by kernels of ours, bias and activation in them.

On tensor cores, an activation whose input forward must leave for backward is taken along too where
backward wants but the sum of a bias's gradient: it computes the input again, which is never stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from ....graph.ops import Activation, ActivationBackward, BiasGrad, Conv2d
from ..binding.bind import Binder
from ..binding.buffer import Buffer
from ..binding.layouts import FEWEST_CHANNELS
from ..binding.wide import kind_of
from ..libraries.candidates import Candidates
from ..libraries.kernels import THREADS, Defines, Grid, Kernel, f32
from ..libraries.layout import BFLOAT, Layout, ceil_div, padded
from .pattern import defines, single

FILE, NAME = "direct_conv.cu", "direct_conv"
# The same on tensor cores, and the sums of a bias's gradient.
TENSOR_FILE, TENSOR_NAME, SUMS_NAME = "tensor_direct.cu", "tensor_direct_conv", "tensor_direct_sums"
# Filters in eights, and how many eights a warp has at most; blocks of a processor.
OCTET, MOST_OCTETS, RESIDENT = 8, 4, 3
# Blocks that leave a slice of sums each: as many as an H200 has at once. On others the bits are the
# same.
SUMMING_BLOCKS = 264
# What its loops are unrolled for, and what it keeps in registers: taps times filters of a thread.
MOST_TAPS, MOST_FILTERS, MOST_HELD = 48, 128, 96
# Bytes of shared memory of a block, and blocks that a small batch should have.
MOST_SHARED, FEWEST_BLOCKS = 46 << 10, 528
MOST_INDEX = 1 << 31


class DirectConv(Candidates):
    """``direct_conv`` and its like on tensor cores, bound to real pictures, with the shapes of
    their loops as candidates.

    x, w, y lie as for cuDNN: all channels-last or all NCHW, one type; x and w without padding of
    their inner channels. Use ``takes`` to learn whether it can be had.
    """

    def __init__(self, b: Binder, op: Conv2d, x: Buffer, w: Buffer, y: Layout) -> None:
        self._b, self._op = b, op
        self._operands = (x, w, op.bias)
        self._y = y
        # With the activation behind it where that is taken along.
        self._computed = op
        self.stream = b.stream.cuda
        self._shapes = list(shapes_of(op, y))

    def plans(self) -> int:
        return len(self._shapes)

    def order(self) -> list[int]:
        """Those on tensor cores first: a search may have no time for all."""
        return sorted(range(self.plans()), key=lambda index: not self.on_tensor_cores(index))

    def build(self, index: int) -> bool:
        """Compile it for this shape."""
        self._kernel(index).ready()
        return True

    def _kernel(self, index: int) -> Kernel:
        file, function, dtype = self._file(index)
        return Kernel(file, function, dtype, defines=self._defines(index))

    def _file(self, index: int) -> tuple[str, str, str]:
        file = (TENSOR_FILE, TENSOR_NAME) if self.on_tensor_cores(index) else (FILE, NAME)
        return (*file, self._y.dtype)

    def on_tensor_cores(self, index: int) -> bool:
        """Whether a shape is one of the kernel on tensor cores."""
        return "OCTETS" in self._shapes[index]

    def name(self, index: int) -> str:
        return f"{self._file(index)[1]} {self._shapes[index]}"

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        given = [*map(self._b.argument, self._arguments(index))]
        return self._kernel(index).launch(self.stream, self._grid(index), (THREADS,), given)

    def verified(self, index: int, workspace: int) -> bool:
        """Its sums are of float32 products, in one order."""
        return True

    def choose(self, index: int | None = None) -> None:
        """Take a shape; None: the first. Raises ValueError for one that there is not."""
        self.plan = index or 0
        if not 0 <= self.plan < self.plans():
            label = self._op.label()
            raise ValueError(f"{NAME}, {label}: shape {self.plan} of the tuning is unknown")

    def add(self) -> None:
        """Append the launch with the shape taken, and the activation behind it if that can be."""
        activation = _behind(self._b, self._op) if self.on_tensor_cores(self.plan) else None
        if activation is not None:
            self._take_along(activation)
        arguments, fixed = self._arguments(self.plan), self._defines(self.plan)
        grid, kernel = self._grid(self.plan), self._file(self.plan)
        self._b.kernel(self._op, kernel, grid, arguments, defines=fixed)

    def _take_along(self, activation: Activation) -> None:
        kind, alpha = activation.kind, activation.alpha
        self._computed = replace(self._op, y=activation.y, activation=kind, activation_alpha=alpha)
        self._b.decisions.merged.add(id(activation))
        self._b.decisions.again[self._op.y] = self._add_sums

    def _add_sums(self, op: ActivationBackward) -> None:
        """The gradient of the bias through the activation."""
        b, columns = self._b, self._y.columns
        found = b.bias_gradient_of(op.dx)
        assert found is not None, "the convolution has seen that there is one"
        _, db = found
        blocks = min(self._units(self.plan), SUMMING_BLOCKS)
        sums = b.scratch(blocks * columns, "float32")
        ends = (*self._operands, b.want(op.dy, self._y), sums)
        given = (*ends, f32(op.alpha), self._op.x.shape[0])
        kernel, shown = (TENSOR_FILE, SUMS_NAME, self._y.dtype), {"kind": op.kind, "sums": db.name}
        b.kernel(op, kernel, (blocks,), given, shown, defines=self._defines(self.plan))
        b.slices(op, sums, 0, blocks, columns, db, db.size)

    def _arguments(self, index: int) -> tuple[Any, ...]:
        y = self._b.output(self._computed.y, self._y)
        common = (*self._operands, y, f32(self._computed.activation_alpha))
        return (*common, self._op.x.shape[0]) if self.on_tensor_cores(index) else common

    def _defines(self, index: int) -> Defines:
        return defines(geometry_of(self._computed, self._y) | self._shapes[index])

    def _parts(self, index: int) -> int:
        """Into how many parts the rows of y are cut."""
        return ceil_div(self._op.y.shape[2], self._shapes[index]["LINES"])

    def _units(self, index: int) -> int:
        return self._op.x.shape[0] * self._parts(index)

    def _grid(self, index: int) -> Grid:
        if self.on_tensor_cores(index):
            return (min(self._units(index), RESIDENT * self._b.stream.processors.count),)
        return (self._op.x.shape[0], self._parts(index))


def _behind(b: Binder, op: Conv2d) -> Activation | None:
    """The activation behind a convolution whose input nothing reads, but its own gradient where
    that is wanted for the sum of a bias's gradient alone; None if there is none such."""
    readers, results = b.graph.consumers(op.y), b.graph.results.values()
    activation = single([r for r in readers if isinstance(r, Activation)], Activation)
    others = [reader for reader in readers if reader is not activation]
    if activation is None or op.activation is not None or op.y in results:
        return None
    same = b.number(activation.y) == b.number(op.y)
    back = single(others, ActivationBackward)
    if not others:
        return activation if same else None
    if back is None or back.value != op.y or back.kind != activation.kind or back.dx in results:
        return None
    found = b.bias_gradient_of(back.dx)
    alone = single(b.graph.consumers(back.dx), BiasGrad)
    return activation if same and found is not None and found[0] is alone else None


def takes(op: Conv2d, y: Layout) -> bool:
    """Whether the kernel can compute a convolution whose output lies like this."""
    filters, channels = op.w.shape[:2]
    taps = channels * op.window.area
    pictures = (op.x.size // op.x.shape[0], y.size // y.shape[0])
    return (
        op.groups == 1
        and channels < FEWEST_CHANNELS
        and taps <= MOST_TAPS
        # One row is one run of the loop over taps, see the kernel: the registers must hold it.
        and (op.window.kernel[0] > 1 or taps * _vector(y) <= MOST_HELD)
        and filters <= MOST_FILTERS
        and max(pictures) < MOST_INDEX
        and _lines(op, y) > 0
    )


def geometry_of(op: Conv2d, y: Layout) -> dict[str, int]:
    """The numbers that the kernel is compiled with, whatever its shape."""
    window = op.window
    names = (
        "CHANNELS HEIGHT WIDTH KERNEL_H KERNEL_W STRIDE_H STRIDE_W DILATION_H DILATION_W TOP LEFT "
        "ROWS COLUMNS FILTERS STORED LAST ACTIVATION BLOCK"
    )
    numbers = (
        *(*op.x.shape[1:], *window.kernel, *window.stride, *window.dilation),
        *(window.padding[0], window.padding[2], *op.y.shape[2:], op.w.shape[0], y.columns),
        *(int(y.nhwc), kind_of(op.activation), THREADS),
    )
    return dict(zip(names.split(), numbers, strict=True))


def _vector(y: Layout) -> int:
    """Filters of a thread: 16 bytes of y."""
    return 4 if y.item == "float32" else 8


def shapes_of(op: Conv2d, y: Layout) -> Iterator[dict[str, int]]:
    """The numbers of its shapes: how the loops may be cut, the most promising first."""
    lines = _lines(op, y)
    taps = op.w.shape[1] * op.window.area
    if taps * _vector(y) <= MOST_HELD:
        yield {"LINES": lines, "EACH": 1, "HELD": 1}
    else:
        yield {"LINES": lines, "EACH": 8, "HELD": 0}
    yield {"LINES": lines, "EACH": 4, "HELD": 0}
    octets = y.columns // OCTET
    groups = ceil_div(octets, MOST_OCTETS)
    # Each warp has one group of filters, and a block all of them.
    fits = y.columns % OCTET == 0 and groups <= THREADS // 32
    if y.nhwc and y.dtype == BFLOAT and fits:
        # Equal where a batch is small: the number of a shape means one that all batches have.
        for part in (ceil_div(lines, 2), lines):
            yield {"LINES": part, "OCTETS": ceil_div(octets, groups)}


def _lines(op: Conv2d, y: Layout) -> int:
    """Rows of y that a block computes: as many as fit, fewer where the batch is small; 0: none."""
    window, (count, _, rows, columns) = op.window, op.y.shape
    filters, channels = op.w.shape[:2]
    vector = _vector(y)
    pitch = padded(filters, vector) + 4
    left = MOST_SHARED // 4 - channels * window.area * pitch
    wide = (columns - 1) * window.stride[1] + window.extent[1]
    tall = left // (channels * wide)
    most = min(rows, (tall - window.extent[0]) // window.stride[0] + 1)
    if most < 1:
        return 0
    parts = max(ceil_div(rows, most), min(rows, ceil_div(FEWEST_BLOCKS, count)))
    return ceil_div(rows, parts)
