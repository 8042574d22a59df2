"""Batch norm by kernels of ours: cuDNN's own are several times slower for channels-last."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from ....common.records import dataclass
from ....graph import ops
from ....graph.graph import Op, Tensor
from ..binding.bind import Binder, binds
from ..binding.buffer import Buffer
from ..fused.pattern import LAUNCHES, part
from ..fused.residual import GRADIENT, NORM_ADD
from ..libraries.kernels import THREADS, Defines, Grid, blocks_for, f32
from ..libraries.layout import BFLOAT, Layout, ceil_div, padded
from ..libraries.timing import captured_seconds

# Processors that blocks which leave slices of sums are meant for: on others the bits are the same.
SUMMING_PROCESSORS = 132
# Blocks of norm.cu that a processor has at once: RESIDENT for those that read several tensors in
# eights. More would not go through the rows side by side, and find less in the cache.
BLOCKS, RESIDENT = 4, 3
# Up to FREE_SLICES are united as fast as one; more only if each thread sums SUMMED_ROWS.
FREE_SLICES, SUMMED_ROWS = 64, 4
# TILE and PARTS of norm.cu: channels of a block that unites slices, and threads per channel.
TILE, PARTS = 8, 64
# Groups of channels that a block covers at most.
MOST_GROUPS = 64
FOUR, EIGHT = 4, 8
# Rows that each thread of all processors must have, one by one, for eight channels at a time
# to be faster than four in bfloat16: twice those that it asks for at once, or more. Moments
# never are: what follows their rows takes longer, two sums in double for each channel.
LEAST_TURNS = {"normalize": 8, "gradient_sums": 8, "normalize_backward": 4}
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
        enough = ceil_div(self.rows, self.count * SUMMED_ROWS)
        return min(self.blocks(SUMMING_PROCESSORS, several), max(enough, FREE_SLICES))

    @property
    def numbers(self) -> tuple[Any, ...]:
        """What a kernel that reads or writes rows needs to know of them."""
        return self.rows, self.groups, self.channels, self.width

    @property
    def uniting(self) -> Grid:
        return (ceil_div(self.channels, TILE),)

    def united(self, slices: int) -> tuple[Any, ...]:
        """What a kernel that unites so many slices needs to know of them."""
        return slices, self.rows, self.channels, self.groups * self.each


def _floats(b: Binder, *tensors: Tensor | None) -> list[Buffer | None]:
    return [None if tensor is None else b.floats(tensor) for tensor in tensors]


@dataclass(frozen=True)
class _Launches:
    """Launches of the kernels of an operation, with an activation compiled in. ``others``: what
    they are compiled with besides, all of them, so that they are of one module."""

    b: Binder
    op: Op
    layout: Layout
    activation: str | None = None
    others: Defines = ()

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
        shown: dict[str, object] = {"rows": cover.rows, "channels": cover.channels}
        defines: Defines = (("EACH", cover.each), *self.others)
        if self.activation is not None:
            shown["activation"] = self.activation
            defines += (("KIND", ops.ACTIVATIONS.index(self.activation)),)
        file = ("norm.cu", name, self.layout.dtype)
        self.b.kernel(self.op, file, grid, arguments, shown, block=block, defines=defines)

    def writing(self, name: str, ends: tuple[Any, ...], known: tuple[Any, ...]) -> None:
        """One that goes once through all rows, and leaves no sums."""
        cover = self.cover(name)
        blocks = cover.blocks(self.b.stream.processors.count, name in SEVERAL)
        self(name, cover, (blocks, cover.chunks), (*ends, *cover.numbers, *known))


@binds(ops.BatchNorm)
@binds(ops.BatchNormInference)
def batch_norm(b: Binder, op: ops.BatchNorm | ops.BatchNormInference) -> None:
    _forward(b, op, op, None)


def _norm_add(b: Binder, op: ops.Fused) -> None:
    """Batch norm, and the sum of it with another tensor, written in one pass."""
    _forward(b, op, part(op, ops.BatchNorm) or part(op, ops.BatchNormInference), part(op, ops.Add))


def _forward(
    b: Binder, op: Op, norm: ops.BatchNorm | ops.BatchNormInference, added: ops.Add | None
) -> None:
    """Moments in slices, united; then one pass that normalises, and adds another term."""
    result, active = (norm.y, norm) if added is None else (added.y, added)
    layout = channels_last(b, norm.x, b.number(result))
    x, other = b.want(norm.x, layout), None
    if added is not None:
        other = b.want(next(term for term in added.terms if term != norm.y), layout)
    launch = _Launches(b, op, layout, active.activation, (("ADDS", 1),) if added else ())
    statistics, eps = _statistics(launch, norm, x)
    ends, affine = (x, other, b.output(result, layout)), _floats(b, norm.weight, norm.bias)
    last = (*statistics, *affine, f32(eps), f32(active.activation_alpha))
    launch.writing("normalize", ends, last)


def _statistics(
    launch: _Launches, norm: ops.BatchNorm | ops.BatchNormInference, x: Buffer
) -> tuple[tuple[Any, Any], float]:
    """What to normalise with: the mean, and the inverse deviation, or the variance with its eps."""
    b, layout = launch.b, launch.layout
    if isinstance(norm, ops.BatchNormInference):
        return (norm.running_mean, norm.running_var), norm.eps
    cover = launch.cover("moments")
    slices, count = None, cover.slices()
    if b.home(norm.x).layout.same(layout):
        slices, count = b.decisions.moments.get(norm.x, (slices, count))
    if slices is None:
        slices = b.scratch(2 * count * layout.columns, "float64")
        launch("moments", cover, (count, cover.chunks), (x, slices, *cover.numbers))
        _spared(b, norm)
    found = (b.output(norm.mean), b.output(norm.inverse_std))
    rule, running = (f32(norm.eps), f32(norm.momentum)), (norm.running_mean, norm.running_var)
    left = None if norm.var is None else b.output(norm.var)
    arguments = (slices, *cover.united(count), *rule, *found, *running, left)
    launch("statistics", cover, cover.uniting, arguments, (TILE * PARTS,))
    return found, -1.0


def _spared(b: Binder, norm: ops.BatchNorm) -> None:
    """Tell a search what a convolution in front spares that leaves the moments itself."""
    before = b.graph.producer(norm.x)
    if isinstance(before, ops.Conv2d):
        seconds = partial(captured_seconds, b.steps[-1].launch, b.stream.cuda)
        b.spared[b.choice(before, "forward")] = seconds


@binds(ops.BatchNormInferenceBackward)
def batch_norm_inference_backward(b: Binder, op: ops.BatchNormInferenceBackward) -> None:
    """Inference of the gradient; without a mean and a shift, both are 0."""
    layout = channels_last(b, op.dy, b.number(op.dx))
    dy, dx = b.want(op.dy, layout), b.output(op.dx, layout)
    affine = (*_floats(b, op.weight), None, f32(op.eps), f32(0.0))
    _Launches(b, op, layout).writing("normalize", (dy, None, dx), (None, op.running_var, *affine))


@binds(ops.BatchNormBackward)
def batch_norm_backward(b: Binder, op: ops.BatchNormBackward) -> None:
    """Sums in slices, added up; then one pass for dx."""
    layout = channels_last(b, op.x, b.number(op.dx))
    value = op.y if op.activation in ops.FROM_OUTPUT else None
    ends = (b.want(op.x, layout), b.want(op.dy, layout))
    y = None if value is None else b.want(value, layout)
    launch = _Launches(b, op, layout, op.activation)
    means = _sums(launch, op, (*ends, None, y, None), op.activation_alpha)
    _gradient(launch, op, (*ends, y), means, op.activation_alpha)


def _residual_gradient(b: Binder, op: ops.Fused) -> None:
    """The gradient of a sum's output, behind its activation: left for the other term, and through
    the batch norm."""
    back, mask, added = (
        part(op, kind) for kind in (ops.BatchNormBackward, ops.ActivationBackward, ops.Add)
    )
    layout = channels_last(b, back.x, b.number(back.dx))
    kind, alpha, value = back.activation, back.activation_alpha, back.y
    if mask is not None:
        kind, alpha, value = mask.kind, mask.alpha, mask.value
    terms = (back.dy if mask is None else mask.dy,) if added is None else added.terms
    first, second = (*(b.want(term, layout) for term in terms), None)[:2]
    x, y = b.want(back.x, layout), b.want(value, layout) if kind in ops.FROM_OUTPUT else None
    # Nobody else reads it without a mask of its own: the sum of two gradients.
    left = b.output(back.dy if mask is None else mask.dx, layout)
    fixed = (("KEEPS_NAN", int(mask is not None)), ("TERMS", len(terms)), ("WRITES", 1))
    sums = _Launches(b, op, layout, kind, fixed)
    means = _sums(sums, back, (x, first, second, y, left), alpha)
    _gradient(_Launches(b, op, layout), back, (x, left, None), means, 0.0)


LAUNCHES |= {NORM_ADD: _norm_add, GRADIENT: _residual_gradient}


def _sums(
    launch: _Launches, op: ops.BatchNormBackward, ends: tuple[Buffer | None, ...], alpha: float
) -> Any:
    """db and dw; and the means that dx needs, on the device."""
    b, layout = launch.b, launch.layout
    cover = launch.cover("gradient_sums")
    count = cover.slices(several=True)
    slices = b.scratch(2 * count * layout.columns, "float64")
    means = b.zeros(2 * layout.columns)
    arguments = (*ends, slices, *cover.numbers, *_known(b, op, alpha))
    launch("gradient_sums", cover, (count, cover.chunks), arguments)
    db, dw = (None if t is None else b.output(t) for t in (op.db, op.dw))
    united = (slices, *cover.united(count), db, dw, means)
    launch("gradient_means", cover, cover.uniting, united, (TILE * PARTS,))
    return means


def _gradient(
    launch: _Launches,
    op: ops.BatchNormBackward,
    ends: tuple[Buffer | None, ...],
    means: Any,
    alpha: float,
) -> None:
    """dx of x, dy and, where the activation's slope is of it, y."""
    dx = launch.b.output(op.dx, launch.layout)
    launch.writing("normalize_backward", (*ends, dx), (*_known(launch.b, op, alpha), means))


def _known(b: Binder, op: ops.BatchNormBackward, alpha: float) -> tuple[Any, ...]:
    return (*_floats(b, op.mean, op.inverse_std, op.weight, op.bias), f32(alpha))
