"""Batch norm by kernels of ours: cuDNN's own are several times slower for channels-last."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ....graph.graph import Tensor
from ....graph.ops import (
    ACTIVATIONS,
    FROM_OUTPUT,
    BatchNorm,
    BatchNormBackward,
    BatchNormInference,
    BatchNormInferenceBackward,
)
from ..binding.bind import Binder, binds
from ..binding.store import Buffer
from ..libraries.kernels import THREADS, Defines, Grid, blocks_for, f32
from ..libraries.layout import BFLOAT, Layout, ceil_div, padded

# Processors that blocks which leave slices of sums are meant for: on others the bits are the same.
SUMMING_PROCESSORS = 132
# Blocks of norm.cu that a processor has at once: RESIDENT for those that read several tensors in
# eights. More would not go through the rows side by side, and find less in the cache.
BLOCKS, RESIDENT = 4, 3
# Up to FREE_SLICES are united as fast as one; more only if each thread sums ENOUGH_ROWS.
FREE_SLICES, ENOUGH_ROWS = 64, 8
# TILE and PARTS of norm.cu: channels of a block that unites slices, and threads per channel.
UNITING = (8, 64)
# Groups of channels that a block covers at most.
MOST_GROUPS = 64
FOUR, EIGHT = 4, 8
# Rows that each thread of all processors must have, one by one, for eight channels at a time
# to be faster than four in bfloat16: twice those that it asks for at once, or ENOUGH_ROWS. Moments
# never are: what follows their rows takes longer, two sums in double for each channel.
LEAST_TURNS = {"normalize": 8, "gradient_sums": ENOUGH_ROWS, "normalize_backward": 4}
SEVERAL = ("gradient_sums", "normalize_backward")


def channels_last(b: Binder, tensor: Tensor, dtype: str) -> Layout:
    """Rows of channels in fours: as the tensor lies already, where it does."""
    held = b.home(tensor).layout
    n, c = tensor.shape[:2]
    if len(tensor.shape) == 2:
        own = Layout(tensor.shape, (n, padded(b.geometry.units(c), FOUR)), dtype=dtype)
        good = held.picture is None and held.columns % FOUR == 0
    else:
        stored = padded(b.geometry.channels(c), FOUR)
        own = Layout(tensor.shape, (n, stored, *tensor.shape[2:]), nhwc=True, dtype=dtype)
        good = held.nhwc and held.columns % FOUR == 0
    return replace(held, dtype=dtype) if good else own


@dataclass(frozen=True)
class _Lines:
    """How blocks cover a tensor, of which a thread has a group of ``each`` channels."""

    rows: int
    groups: int
    channels: int
    each: int

    @classmethod
    def of(cls, layout: Layout, each: int) -> _Lines:
        stored = layout.columns
        return cls(layout.size // stored, stored // each, layout.shape[1], each)

    @classmethod
    def for_kernel(cls, layout: Layout, kernel: str) -> _Lines:
        """Eights where there are, and it gains by them."""
        fours = cls.of(layout, FOUR)
        least = LEAST_TURNS.get(kernel)
        if least is None or layout.dtype != BFLOAT or layout.columns % EIGHT:
            return fours
        eights = cls.of(layout, EIGHT)
        at_once = eights.count * eights.most(SUMMING_PROCESSORS, kernel in SEVERAL)
        return eights if eights.rows >= least * at_once else fours

    @property
    def chunks(self) -> int:
        return ceil_div(self.groups, MOST_GROUPS)

    @property
    def width(self) -> int:
        return ceil_div(self.groups, self.chunks)

    @property
    def count(self) -> int:
        """Rows that a block takes at a time."""
        return THREADS // self.width

    def most(self, processors: int, several: bool) -> int:
        """Blocks of a chunk that these processors have at once; ``several``: of a kernel that reads
        several tensors."""
        resident = RESIDENT if several and self.each == EIGHT else BLOCKS
        return max(1, processors * resident // self.chunks)

    def blocks(self, processors: int, several: bool) -> int:
        """So many for these processors."""
        return blocks_for(self.rows, self.count, self.most(processors, several))

    def slices(self, several: bool = False) -> int:
        """Blocks that sum, each of which leaves a slice."""
        enough = ceil_div(self.rows, self.count * ENOUGH_ROWS)
        return min(self.blocks(SUMMING_PROCESSORS, several), max(enough, FREE_SLICES))

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What a kernel that reads or writes rows needs to know of them."""
        return self.rows, self.groups, self.channels, self.width

    @property
    def uniting(self) -> Grid:
        return (ceil_div(self.channels, UNITING[0]),)

    def united(self, slices: int) -> tuple[Any, ...]:
        """What a kernel that unites so many slices needs to know of them."""
        return slices, self.rows, self.channels, self.groups * self.each


def _floats(b: Binder, *tensors: Tensor | None) -> list[Buffer | None]:
    return [None if tensor is None else b.floats(tensor) for tensor in tensors]


@dataclass(frozen=True)
class _Launches:
    """Launches of the kernels of an operation, with its activation compiled in."""

    b: Binder
    op: BatchNorm | BatchNormInference | BatchNormBackward | BatchNormInferenceBackward
    layout: Layout

    def cover(self, name: str) -> _Lines:
        return _Lines.for_kernel(self.layout, name)

    def __call__(
        self,
        name: str,
        cover: _Lines,
        grid: Grid,
        arguments: tuple[Any, ...],
        block: Grid = (THREADS,),
    ) -> None:
        kind = None
        if not isinstance(self.op, BatchNormInferenceBackward):
            kind = self.op.activation
        shown: dict[str, object] = {"rows": cover.rows, "channels": cover.channels}
        defines: Defines = (("EACH", cover.each),)
        if kind is not None:
            shown["activation"] = kind
            defines += (("KIND", ACTIVATIONS.index(kind)),)
        file = ("norm.cu", name, self.layout.dtype)
        self.b.kernel(self.op, file, grid, arguments, shown, block=block, defines=defines)

    def writing(self, name: str, ends: tuple[Any, ...], known: tuple[Any, ...]) -> None:
        """One that goes once through all rows, and leaves no sums."""
        cover = self.cover(name)
        blocks = cover.blocks(self.b.stream.processors.count, name in SEVERAL)
        self(name, cover, (blocks, cover.chunks), (*ends, *cover.numbers, *known))


@binds(BatchNorm)
def batch_norm(b: Binder, op: BatchNorm) -> None:
    """Moments in slices, united; then one pass that normalises."""
    layout = channels_last(b, op.x, b.number(op.y))
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    launch = _Launches(b, op, layout)
    cover = launch.cover("moments")
    count = cover.slices()
    slices = b.scratch(2 * count * layout.columns, "float64")
    launch("moments", cover, (count, cover.chunks), (x, slices, *cover.numbers))
    statistics = (b.output(op.mean), b.output(op.inverse_std))
    rule, running = (f32(op.eps), f32(op.momentum)), (op.running_mean, op.running_var)
    left = None if op.var is None else b.output(op.var)
    arguments = (slices, *cover.united(count), *rule, *statistics, *running, left)
    launch("statistics", cover, cover.uniting, arguments, UNITING)
    _normalize(launch, op, (x, y), statistics, -1.0)


@binds(BatchNormInference)
def batch_norm_inference(b: Binder, op: BatchNormInference) -> None:
    layout = channels_last(b, op.x, b.number(op.y))
    x, y = b.want(op.x, layout), b.output(op.y, layout)
    launch = _Launches(b, op, layout)
    _normalize(launch, op, (x, y), (op.running_mean, op.running_var), op.eps)


@binds(BatchNormInferenceBackward)
def batch_norm_inference_backward(b: Binder, op: BatchNormInferenceBackward) -> None:
    """Inference of the gradient; without a mean and a shift, both are 0."""
    layout = channels_last(b, op.dy, b.number(op.dx))
    dy, dx = b.want(op.dy, layout), b.output(op.dx, layout)
    affine = (*_floats(b, op.weight), None, f32(op.eps), f32(0.0))
    _Launches(b, op, layout).writing("normalize", (dy, dx), (None, op.running_var, *affine))


def _normalize(
    launch: _Launches,
    op: BatchNorm | BatchNormInference,
    ends: tuple[Buffer, Buffer],
    statistics: tuple[Any, Any],
    eps: float,
) -> None:
    affine = _floats(launch.b, op.weight, op.bias)
    last = (*statistics, *affine, f32(eps), f32(op.activation_alpha))
    launch.writing("normalize", ends, last)


@binds(BatchNormBackward)
def batch_norm_backward(b: Binder, op: BatchNormBackward) -> None:
    """Sums in slices, added up; then one pass for dx."""
    layout = channels_last(b, op.x, b.number(op.dx))
    x, dy, dx = b.want(op.x, layout), b.want(op.dy, layout), b.output(op.dx, layout)
    value = op.y if op.activation in FROM_OUTPUT else None
    y = None if value is None else b.want(value, layout)
    launch = _Launches(b, op, layout)
    cover = launch.cover("gradient_sums")
    count = cover.slices(several=True)
    slices = b.scratch(2 * count * layout.columns, "float64")
    means = b.zeros(2 * layout.columns)
    statistics = _floats(b, op.mean, op.inverse_std, op.weight, op.bias)
    known = (*statistics, f32(op.activation_alpha))
    arguments = (x, dy, y, slices, *cover.numbers, *known)
    launch("gradient_sums", cover, (count, cover.chunks), arguments)
    db, dw = (None if t is None else b.output(t) for t in (op.db, op.dw))
    united = (slices, *cover.united(count), db, dw, means)
    launch("gradient_means", cover, cover.uniting, united, UNITING)
    launch.writing("normalize_backward", (x, dy, y, dx), (*known, means))
