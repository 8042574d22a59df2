"""Batch norm by kernels of ours: cuDNN's own are several times slower for channels-last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....graph.graph import Tensor
from ....graph.ops import ACTIVATIONS, FROM_OUTPUT, BatchNorm, BatchNormBackward, BatchNormInference
from ..binding.bind import Binder, binds
from ..libraries.kernels import THREADS, Defines, Grid, f32, i32
from ..libraries.layout import Layout, padded

# Blocks that read, each of which leaves a slice of sums; blocks that only write may be more.
SUMMING_BLOCKS, BLOCKS = 528, 2112
# Up to FREE_SLICES are united as fast as one; more only if each thread sums ENOUGH_ROWS.
FREE_SLICES, ENOUGH_ROWS = 64, 8
# TILE and PARTS of norm.cu: channels of a block that unites slices, and threads per channel.
UNITING = (8, 64)
# Groups of four channels that a block covers at most.
MOST_GROUPS = 64
FOUR = 4


def channels_last(b: Binder, tensor: Tensor, dtype: str) -> Layout:
    """Rows of channels in fours: as the tensor lies already, where it does."""
    held = b.home(tensor).layout
    n, c = tensor.shape[:2]
    if len(tensor.shape) == 2:
        own = Layout(tensor.shape, (n, padded(b.geometry.units(c), FOUR)), dtype=dtype)
        good = held.picture is None and held.stored[1] % FOUR == 0
    else:
        stored = padded(b.geometry.channels(c), FOUR)
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

    @property
    def slices(self) -> int:
        """Blocks that sum, each of which leaves a slice."""
        enough = -(-self.rows // (self.count * ENOUGH_ROWS))
        return min(self.blocks(SUMMING_BLOCKS), max(enough, FREE_SLICES))

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The members of struct Lines."""
        return tuple(map(i32, (self.rows, self.groups, self.channels, self.width)))

    @property
    def uniting(self) -> Grid:
        return (-(-self.channels // UNITING[0]),)

    @property
    def united(self) -> tuple[Any, ...]:
        """What a kernel that unites slices needs to know of them."""
        stored = self.groups * FOUR
        return tuple(map(i32, (self.slices, self.rows, self.channels, stored)))


def _array(b: Binder, tensor: Tensor | None) -> Any:
    return 0 if tensor is None else b.floats(tensor).array


@dataclass(frozen=True)
class _Launches:
    """Launches of the kernels of an operation, with its activation compiled in."""

    b: Binder
    op: BatchNorm | BatchNormInference | BatchNormBackward
    layout: Layout
    cover: _Lines

    def __call__(
        self, name: str, grid: Grid, arguments: tuple[Any, ...], block: Grid = (THREADS,)
    ) -> None:
        kind = self.op.activation
        shown: dict[str, object] = {"rows": self.cover.rows, "channels": self.cover.channels}
        defines: Defines = ()
        if kind is not None:
            shown["activation"] = kind
            defines = (("KIND", ACTIVATIONS.index(kind)),)
        file = ("norm.cu", name, self.layout.dtype)
        self.b.kernel(self.op, file, grid, arguments, shown, block=block, defines=defines)


@binds(BatchNorm)
def batch_norm(b: Binder, op: BatchNorm) -> None:
    """Moments in slices, united; then one pass that normalises."""
    layout = channels_last(b, op.x, b.number(op.y))
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    cover = _Lines.of(layout)
    launch = _Launches(b, op, layout, cover)
    slices = b.scratch(2 * cover.slices * layout.stored[1], "float64")
    launch("moments", (cover.slices, cover.chunks), (x.array, slices, *cover.numbers))
    mean, inverse_std = b.output(op.mean).array, b.output(op.inverse_std).array
    arguments = (
        *(slices, *cover.united, f32(op.eps), f32(op.momentum)),
        *(mean, inverse_std, b.home(op.running_mean).array, b.home(op.running_var).array),
    )
    launch("statistics", cover.uniting, arguments, UNITING)
    _normalize(launch, op, x.array, y.array, (mean, inverse_std), -1.0)


@binds(BatchNormInference)
def batch_norm_inference(b: Binder, op: BatchNormInference) -> None:
    layout = channels_last(b, op.x, b.number(op.y))
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    statistics = (b.home(op.running_mean).array, b.home(op.running_var).array)
    launch = _Launches(b, op, layout, _Lines.of(layout))
    _normalize(launch, op, x.array, y.array, statistics, op.eps)


def _normalize(
    launch: _Launches,
    op: BatchNorm | BatchNormInference,
    x: Any,
    y: Any,
    statistics: tuple[Any, Any],
    eps: float,
) -> None:
    cover = launch.cover
    affine = (_array(launch.b, op.weight), _array(launch.b, op.bias))
    last = (*statistics, *affine, f32(eps), f32(op.activation_alpha))
    launch("normalize", cover.grid(BLOCKS), (x, y, *cover.numbers, *last))


@binds(BatchNormBackward)
def batch_norm_backward(b: Binder, op: BatchNormBackward) -> None:
    """Sums in slices, added up; then one pass for dx."""
    layout = channels_last(b, op.x, b.number(op.dx))
    x, dy, dx = b.want(op.x, layout), b.want(op.dy, layout), b.output(op.dx, layout)
    value = op.y if op.activation in FROM_OUTPUT else None
    y = 0 if value is None else b.want(value, layout).array
    cover = _Lines.of(layout)
    launch = _Launches(b, op, layout, cover)
    slices = b.scratch(2 * cover.slices * layout.stored[1], "float64")
    means = b.keep(b.cupy.zeros(2 * layout.stored[1], "float32"))
    known = (
        *cover.numbers,
        *(_array(b, t) for t in (op.mean, op.inverse_std, op.weight, op.bias)),
        f32(op.activation_alpha),
    )
    first = (x.array, dy.array, y, slices, *known)
    launch("gradient_sums", (cover.slices, cover.chunks), first)
    db, dw = (0 if t is None else b.output(t, b.planned(t)).array for t in (op.db, op.dw))
    launch("gradient_means", cover.uniting, (slices, *cover.united, db, dw, means), UNITING)
    last = (x.array, dy.array, y, dx.array, *known, means)
    launch("normalize_backward", cover.grid(BLOCKS), last)
