"""Batch norm by kernels of ours: cuDNN's own are several times slower for channels-last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...graph import Tensor
from ...ops import BatchNorm, BatchNormBackward, BatchNormInference
from .bind import Binder, binds
from .kernels import THREADS, Grid, f32, i32
from .layout import Layout, padded
from .linear import geometry
from .runtime import cupy

# Blocks that read, each of which leaves a slice of sums; blocks that only write may be more.
SUMMING_BLOCKS, BLOCKS = 528, 2112
# Groups of four channels that a block covers at most.
MOST_GROUPS = 64
FOUR = 4


def channels_last(b: Binder, tensor: Tensor, dtype: str) -> Layout:
    """Rows of channels in fours: as the tensor lies already, where it does."""
    held = b.home(tensor).layout
    n, c = tensor.shape[:2]
    if len(tensor.shape) == 2:
        own = Layout(tensor.shape, (n, padded(geometry(b).units(c), FOUR)), dtype=dtype)
        good = held.picture is None and held.stored[1] % FOUR == 0
    else:
        stored = padded(geometry(b).channels(c), FOUR)
        own = Layout(tensor.shape, (n, stored, *tensor.shape[2:]), nhwc=True, dtype=dtype)
        good = held.nhwc and held.stored[1] % FOUR == 0
    return Layout(held.shape, held.stored, held.nhwc, dtype=dtype) if good else own


@dataclass(frozen=True)
class _Lines:
    """How blocks cover a tensor: struct Lines of norm.cu."""

    rows: int
    groups: int
    channels: int

    @classmethod
    def of(cls, layout: Layout) -> _Lines:
        stored = layout.stored[1]
        return cls(layout.size // stored, stored // FOUR, layout.shape[1])

    @property
    def chunks(self) -> int:
        return -(-self.groups // MOST_GROUPS)

    @property
    def width(self) -> int:
        return -(-self.groups // self.chunks)

    @property
    def count(self) -> int:
        """Rows that a block takes at a time."""
        return THREADS // self.width

    def blocks(self, most: int) -> int:
        return max(1, min(most // self.chunks, -(-self.rows // self.count)))

    def grid(self, most: int) -> Grid:
        return (self.blocks(most), self.chunks)

    def on_device(self, b: Binder) -> Any:
        return b.numbers(self.rows, self.groups, self.channels, self.width)


def _array(b: Binder, tensor: Tensor | None) -> Any:
    return 0 if tensor is None else b.floats(tensor).array


def _file(name: str, layout: Layout) -> tuple[str, str, bool]:
    return ("norm.cu", name, layout.dtype == "bfloat16")


@binds(BatchNorm)
def batch_norm(b: Binder, op: BatchNorm) -> None:
    """Moments in slices, united; then one pass that normalises."""
    layout = channels_last(b, op.x, b.number(op.y))
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    cover = _Lines.of(layout)
    lines, blocks = cover.on_device(b), cover.blocks(SUMMING_BLOCKS)
    slices = b.keep(cupy().empty(2 * blocks * layout.stored[1], "float64"))
    shown = {"rows": cover.rows, "channels": cover.channels}
    grid = cover.grid(SUMMING_BLOCKS)
    b.kernel(op, _file("moments", layout), grid, (x.array, slices, lines), shown)
    mean, inverse_std = b.output(op.mean).array, b.output(op.inverse_std).array
    arguments = (
        *(slices, i32(blocks), i32(cover.count), lines, f32(op.eps), f32(op.momentum)),
        *(mean, inverse_std, b.home(op.running_mean).array, b.home(op.running_var).array),
    )
    whole = -(-cover.channels // 32)
    b.kernel(op, _file("statistics", layout), (whole,), arguments, shown, block=(32, 32))
    _normalize(b, op, layout, x.array, y.array, (mean, inverse_std), -1.0)


@binds(BatchNormInference)
def batch_norm_inference(b: Binder, op: BatchNormInference) -> None:
    layout = channels_last(b, op.x, b.number(op.y))
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    statistics = (b.home(op.running_mean).array, b.home(op.running_var).array)
    _normalize(b, op, layout, x.array, y.array, statistics, op.eps)


def _normalize(
    b: Binder,
    op: BatchNorm | BatchNormInference,
    layout: Layout,
    x: Any,
    y: Any,
    statistics: tuple[Any, Any],
    eps: float,
) -> None:
    cover = _Lines.of(layout)
    affine = (_array(b, op.weight), _array(b, op.bias))
    arguments = (x, y, cover.on_device(b), *statistics, *affine, f32(eps), i32(op.fuse_relu))
    shown = {"rows": cover.rows, "channels": cover.channels, "relu": op.fuse_relu}
    b.kernel(op, _file("normalize", layout), cover.grid(BLOCKS), arguments, shown)


@binds(BatchNormBackward)
def batch_norm_backward(b: Binder, op: BatchNormBackward) -> None:
    """Sums in slices, added up; then one pass for dx."""
    layout = channels_last(b, op.x, b.number(op.dx))
    x, dy, dx = b.want(op.x, layout), b.want(op.dy, layout), b.output(op.dx, layout)
    masks = op.y if op.fuse_relu else None
    y = 0 if masks is None else b.want(masks, layout).array
    mean, inverse_std = _array(b, op.mean), _array(b, op.inverse_std)
    cover = _Lines.of(layout)
    lines, blocks = cover.on_device(b), cover.blocks(SUMMING_BLOCKS)
    slices = b.keep(cupy().empty(2 * blocks * layout.stored[1], "float32"))
    means = b.keep(cupy().zeros(2 * layout.stored[1], "float32"))
    shown = {"rows": cover.rows, "channels": cover.channels, "relu": op.fuse_relu}
    first = (x.array, dy.array, y, slices, lines, mean, inverse_std)
    b.kernel(op, _file("gradient_sums", layout), cover.grid(SUMMING_BLOCKS), first, shown)
    db, dw = (0 if t is None else b.output(t, b.planned(t)).array for t in (op.db, op.dw))
    second = (slices, i32(blocks), lines, db, dw, means)
    whole = -(-cover.channels // 32)
    b.kernel(op, _file("gradient_means", layout), (whole,), second, shown, block=(32, 32))
    last = (x.array, dy.array, y, dx.array, lines, mean, inverse_std, _array(b, op.weight), means)
    b.kernel(op, _file("normalize_backward", layout), cover.grid(BLOCKS), last, shown)
