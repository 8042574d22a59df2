"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ...common.errors import DatasetError
from ...graph.augmentations import stages
from ...graph.graph import Op, Tensor
from ...graph.ops import (
    Advance,
    ClipByNorm,
    GatherAugmented,
    GatherBatch,
    GlobalNorm,
    MatMul,
    Reshape,
    SkipParts,
)
from ..base import Array
from ..read_ahead import ReadAhead
from ..reference.augment import augmented, decisions
from .arenas import by_stretch
from .bind import Binder, binds
from .constants import BINARY, ELTWISE_LINEAR, FORWARD_INFERENCE
from .library import library
from .memory import Descriptor, Memory
from .norm_runs import norm_flags, normalization
from .primitive import Attributes, NoFastKernel, PrimitiveDesc, reorder_desc
from .updates import multiply

# Of larger batches oneDNN's dense layers give each thread rows of its own.
_SHARED_BYTES = 1 << 20
# Channels of the layout that batch norm has its kernels for.
_LANES = 16


@binds(GatherBatch)
def gather_batch(b: Binder, op: GatherBatch) -> None:
    """NumPy copies the batch's pictures as bytes; oneDNN turns them to floats and scales them.

    Bytes that lie side by side in the data set are not copied. Floats are scaled in place.
    """
    n = op.x.shape[0]
    pixels = op.x.size // n
    floats = op.images.dtype == "float32"
    raw = None if floats else b.scratch(Descriptor.of(op.x.shape, "plain", "uint8"))
    picked = (raw or b.output(op.x)).array((n, pixels), np.dtype(op.images.dtype))
    images, rows = b.data(op.images), Rows(b, op)

    def gather() -> None:
        source = images()
        chosen = rows()
        if raw and rows.in_sequence and source.flags.c_contiguous:
            raw.point_to(source, pixels * rows.lowest)
            return
        if raw:
            raw.point_to(picked)
        source.reshape(len(source), pixels).take(chosen, axis=0, out=picked, mode="clip")

    b.host(op, gather, "take", {"pictures": f"{'f32' if floats else 'u8'} {n}x{pixels}"})
    scale_pixels(b, op, raw, rows)


class Rows:
    """Called, it returns the samples of this step, -1 for none, and writes their labels.

    ``words``: those as 32-bit integers, (N, K).
    ``lowest`` is then the least of them, and ``in_sequence`` says whether they are known to follow
    each other in the data set. What is known of an order that nobody can write to is kept, and
    its labels are left out if nothing reads them.
    """

    def __init__(self, b: Binder, op: GatherBatch) -> None:
        self._size, self._name = op.x.shape[0], op.images.name
        floats, shape = op.target.dtype == "float32", op.target.shape
        self._target = b.output(op.target).array(shape) if floats else b.array(op.target)
        self.words = self._target.view(np.int32).reshape(self._size, -1)
        self._step = b.array(op.step)
        self._images, self._labels, self._order = map(b.data, (op.images, op.labels, op.order))
        every = chain.from_iterable(each.tensors(each.inputs) for each in b.graph.ops)
        self._labelled = op.target in (*b.graph.results.values(), *every)
        # An order of one batch that nobody can write to, after a look at it.
        self._known: NDArray[np.int32] | None = None
        self._read_ahead = ReadAhead()

    def __call__(self) -> NDArray[np.int32]:
        every = self._order()
        if every is not self._known:
            self._look(every)
        count = len(self._images())
        if count == 0 or self._highest >= count:
            raise DatasetError(
                f"sample {self._highest} was requested, but '{self._name}' has {count}"
            )
        if self._known is None or self._labelled or self.lowest < 0:
            self._labels().take(self._chosen, axis=0, out=self._target, mode="clip")
            if self.lowest < 0:
                self.words[self._chosen < 0] = -1
        return self._chosen

    def _look(self, every: NDArray[np.int32]) -> None:
        first = self._size * (int(self._step[0]) % (len(every) // self._size))
        self._chosen = chosen = every[first : first + self._size]
        self.lowest, self._highest = int(chosen.min()), int(chosen.max())
        if len(every) > self._size:
            self._read_ahead(self._images(), every, first, self._size)
        lasting = len(every) == self._size and not every.flags.writeable
        self._known = every if lasting else None
        self.in_sequence = lasting and self.lowest >= 0 and bool((np.diff(chosen) == 1).all())


def scale_pixels(b: Binder, op: GatherBatch, raw: Memory | None, rows: Rows) -> None:
    """x = pixels * scale + shift, 0 for a missing sample; raw: uint8; None: x has them."""
    given = (op.images.dtype, {*op.scale}, {*op.shift}) == ("float32", {1.0}, {0.0})
    n, channels = op.x.shape[:2]
    x = b.output(op.x)
    uniform = len(set(op.scale)) == len(set(op.shift)) == 1
    at_once = raw is not None and uniform and op.shift[0] == 0.0
    if raw is not None and not at_once:
        b.primitive(op, reorder_desc(raw.descriptor, x.descriptor), {"src": raw, "dst": x})
    if raw is not None and at_once and not _stream_pixels(b, op, raw, x):
        # Scaled while it is copied: one pass over the numbers in place of two. With a scale for
        # each picture, several threads of oneDNN 3.2 take half as long as with one for all.
        scale = b.constant(Descriptor.of((n,)), op.scale[0])
        desc = reorder_desc(raw.descriptor, x.descriptor, Attributes({"src": 1}))
        b.primitive(op, desc, {"src": raw, "dst": x, "scale_src": scale})
    elif uniform and not at_once and not given:
        linear = (FORWARD_INFERENCE, ELTWISE_LINEAR, x.descriptor, x.descriptor)
        desc = PrimitiveDesc("eltwise_forward", *linear, op.scale[0], op.shift[0], None)
        b.primitive(op, desc, {"src": x, "dst": x}, {"alpha": op.scale[0], "beta": op.shift[0]})
    elif not uniform:
        # oneDNN 3.2 adds the first shift to every channel of 1x1 pictures, but not of rows.
        shape = op.x.shape if op.x.size > n * channels else (n, channels)
        seen = x.view(Descriptor.of(shape))
        spread = (1, channels, *[1] * (len(shape) - 2))
        scale, shift = (b.constant(Descriptor.of(spread), v) for v in (op.scale, op.shift))
        chain = Attributes(chain=((BINARY["add"], shift.descriptor),))
        scaled = (BINARY["mul"], seen.descriptor, scale.descriptor, seen.descriptor, chain)
        memories = {"src": seen, "src_1": scale, "dst": seen, "post_op_0_src_1": shift}
        b.primitive(op, PrimitiveDesc("binary", *scaled), memories, {"post_op": "add"})
    values = x.array((n, op.x.size // n))

    def blank() -> None:
        if rows.lowest < 0:
            values[rows.words[:, 0] == -1] = 0.0

    if not b.graph.training:
        b.host(op, blank, "where")


def _stream_pixels(b: Binder, op: GatherBatch, raw: Memory, x: Memory) -> bool:
    """x = pixels * scale, written past the caches; False, and nothing, if that is no faster.

    Every thread of a dense layer reads all of a small batch. Its lines are then in the caches of
    all cores, and a store has to wait until the others have given theirs up, which takes several
    times as long as to scale. Of oneDNN's calls on floats, batch norm stores past the caches; with
    a mean of 0 and a variance of 1 it multiplies by the scale and rounds no more than that.
    """
    each = op.x.size // op.x.shape[0]
    readers = list(_readers(b, op.x))
    wanted = (
        not b.graph.training
        and library().threads() > 1
        and op.x.nbytes <= _SHARED_BYTES
        and each % _LANES == 0
        and bool(readers)
        and all(isinstance(reader, MatMul) for reader in readers)
    )
    if not wanted:
        return False
    layout = Descriptor.of((op.x.shape[0], _LANES, each // _LANES, 1), "nhwc")
    try:
        desc = normalization(layout, FORWARD_INFERENCE, 0.0, norm_flags(given=True, scale=True))
    except NoFastKernel:
        return False
    numbers = b.scratch(x.descriptor)
    b.primitive(op, reorder_desc(raw.descriptor, x.descriptor), {"src": raw, "dst": numbers})
    given = {"mean": 0.0, "variance": 1.0, "scale": op.scale[0]}
    memories = {at: b.constant(Descriptor.of((_LANES,)), value) for at, value in given.items()}
    memories |= {"src": numbers.view(layout), "dst": x.view(layout)}
    b.primitive(op, desc, memories, given)
    return True


def _readers(b: Binder, tensor: Tensor) -> Iterator[Op]:
    """What reads a tensor, also under another shape."""
    for reader in b.graph.consumers(tensor):
        if isinstance(reader, Reshape):
            yield from _readers(b, reader.y)
        else:
            yield reader


@binds(GlobalNorm)
def global_norm(b: Binder, op: GlobalNorm) -> None:
    values = [memory.array() for (memory,) in by_stretch(b.store, op.gradients)]
    norm = b.output(op.norm).array()

    def run() -> None:
        norm[0] = np.sqrt(sum(np.dot(one, one) for one in values))

    b.host(op, run, "dot")


@binds(ClipByNorm)
def clip_by_norm(b: Binder, op: ClipByNorm) -> None:
    factor = b.scratch(Descriptor.of((1,)))
    scale, norm = factor.array(), b.home(op.norm).array()

    def choose() -> None:
        scale[0] = min(1.0, op.max_norm / max(float(norm[0]), 1e-30))

    b.host(op, choose, "minimum")
    for (part,) in by_stretch(b.store, op.gradients):
        multiply(b, op, part, factor)


@binds(SkipParts)
@binds(Advance)
def advance(b: Binder, op: Advance | SkipParts) -> None:
    step = b.array(op.step)
    count = op.parts if isinstance(op, SkipParts) else 1

    def run() -> None:
        step[0] += count

    b.host(op, run, "add")


@binds(GatherAugmented)
def gather_augmented(b: Binder, op: GatherAugmented) -> None:
    n = op.x.shape[0]
    resamples = bool(stages(op.augment)[1])
    raw = None if resamples else b.scratch(Descriptor.of(op.x.shape, "plain", "uint8"))
    if raw is None:
        pictures = b.output(op.x).array(op.x.shape)
    else:
        pictures = raw.array(op.x.shape, np.uint8)
    images, order, step = b.data(op.images), b.data(op.order), b.array(op.step)
    chosen = Rows(b, op)

    @lru_cache(1)
    def drawn_in(epoch: int, count: int) -> list[Array]:
        """What is drawn for all samples, at once: NumPy's calls cost more than numbers."""
        return decisions(op, np.arange(count), epoch)

    def gather() -> None:
        rows = np.maximum(chosen(), 0)
        epoch = int(step[0]) // (len(order()) // n)
        source = images()
        drawn = [each[rows] for each in drawn_in(epoch, len(source))]
        augmented(op, source, rows, epoch, drawn, pictures)

    kinds = ", ".join(each.kind for each in op.augment)
    details = {"augment": kinds, "pictures": f"{'u8' if raw else 'f32'} {n}x{op.x.size // n}"}
    b.host(op, gather, "take", details)
    scale_pixels(b, op, raw, chosen)
