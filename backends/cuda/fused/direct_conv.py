"""Convolutions of pictures with few channels by a kernel of ours, bias and activation in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ....graph.ops import Conv2d
from ..binding.bind import Binder
from ..binding.layouts import FEWEST_CHANNELS
from ..binding.store import Buffer
from ..binding.wide import kind_of
from ..libraries.candidates import Candidates
from ..libraries.kernels import THREADS, Defines, Grid, Kernel, f32
from ..libraries.layout import Layout, ceil_div, padded
from .pattern import defines

# What a choice begins with where this kernel runs instead of a plan of cuDNN.
DIRECT = "d"
FILE, NAME = "direct_conv.cu", "direct_conv"
# What its loops are unrolled for, and what it keeps in registers: taps times filters of a thread.
MOST_TAPS, MOST_FILTERS, MOST_HELD = 48, 128, 96
# Bytes of shared memory of a block, and blocks that a small batch should have.
MOST_SHARED, FEWEST_BLOCKS = 46 << 10, 528
MOST_INDEX = 1 << 31


class DirectConv(Candidates):
    """``direct_conv`` bound to real pictures, with the shapes of its loops as candidates.

    x, w, y lie as for cuDNN: all channels-last or all NCHW, one type; x and w without padding of
    their inner channels. Use ``takes`` to learn whether it can be had.
    """

    def __init__(self, b: Binder, op: Conv2d, x: Buffer, w: Buffer, y: Buffer) -> None:
        self._b = b
        self._op = op
        self._y = y
        self._arguments = (x, w, op.bias, y, f32(op.activation_alpha))
        self.stream = b.stream.cuda
        self._fixed = geometry_of(op, y.layout)
        self._shapes = list(shapes_of(op, y.layout))

    def plans(self) -> int:
        return len(self._shapes)

    def build(self, index: int) -> bool:
        """Compile it for this shape."""
        self._kernel(index).ready()
        return True

    def _kernel(self, index: int) -> Kernel:
        return Kernel(FILE, NAME, self._y.dtype, defines=self._defines(index))

    def name(self, index: int) -> str:
        return f"{NAME} {self._shapes[index]}"

    def launch(self, index: int, workspace: int) -> Callable[[], None]:
        given = [*map(self._b.argument, self._arguments)]
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
        """Append the launch with the shape taken."""
        kernel, fixed = (FILE, NAME, self._y.dtype), self._defines(self.plan)
        self._b.kernel(self._op, kernel, self._grid(self.plan), self._arguments, defines=fixed)

    def _defines(self, index: int) -> Defines:
        return defines(self._fixed | self._shapes[index])

    def _grid(self, index: int) -> Grid:
        lines = self._shapes[index]["LINES"]
        return (self._op.x.shape[0], ceil_div(self._op.y.shape[2], lines))


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
