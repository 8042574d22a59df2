"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from ....common.errors import DatasetError
from ...graph import Op
from ...ops import Advance, ClipByNorm, GatherBatch, GlobalNorm, SgdUpdate
from .bind import Binder, binds
from .constants import (
    ATTR_SCALES,
    BINARY_ADD,
    BINARY_MUL,
    DST,
    ELTWISE_LINEAR,
    FORWARD_INFERENCE,
    POST_OP_0,
    SRC,
    SRC_1,
)
from .memory import Descriptor, Memory
from .primitive import Attributes, PrimitiveDesc, reorder_desc


@binds(GatherBatch)
def gather_batch(b: Binder, op: GatherBatch) -> None:
    """NumPy copies the batch's pictures as bytes; oneDNN turns them to floats and scales them."""
    n, channels = op.x.shape[:2]
    pixels = op.x.size // n
    x = b.output(op.x, Descriptor.of(op.x.shape))
    raw = Memory(Descriptor.of(op.x.shape, "plain", "uint8"))
    picked = raw.array((n, pixels), np.uint8)
    target = b.array(op.target)
    step = b.array(op.step)
    images, labels, order = b.data(op.images), b.data(op.labels), b.data(op.order)

    def gather() -> None:
        rows = order()
        first = n * (int(step[0]) % (len(rows) // n))
        rows = rows[first : first + n]
        source = images()
        if len(source) == 0 or int(rows.max()) >= len(source):
            raise DatasetError(
                f"sample {int(rows.max())} was asked for; '{op.images.name}' has {len(source)}"
            )
        source.reshape(len(source), pixels).take(rows, axis=0, out=picked, mode="clip")
        labels().take(rows, out=target, mode="clip")
        if int(rows.min()) < 0:
            target[rows < 0] = -1

    b.host(op, gather, "take", {"pictures": f"u8 {n}x{pixels}"})
    b.primitive(op, reorder_desc(raw.descriptor, x.descriptor), {SRC: raw, DST: x})
    if len(set(op.scale)) == len(set(op.shift)) == 1:
        linear = (FORWARD_INFERENCE, ELTWISE_LINEAR, x.descriptor, x.descriptor)
        desc = PrimitiveDesc("eltwise_forward", *linear, op.scale[0], op.shift[0], None)
        b.primitive(op, desc, {SRC: x, DST: x}, {"alpha": op.scale[0], "beta": op.shift[0]})
    else:
        scale, shift = (Memory(Descriptor.of((1, channels, 1, 1))) for _ in range(2))
        scale.array()[:], shift.array()[:] = op.scale, op.shift
        chain = Attributes(binary=(BINARY_ADD, shift.descriptor))
        multiply = (BINARY_MUL, x.descriptor, scale.descriptor, x.descriptor, chain)
        memories = {SRC: x, SRC_1: scale, DST: x, POST_OP_0 | SRC_1: shift}
        b.primitive(op, PrimitiveDesc("binary", *multiply), memories, {"post_op": "add"})
    values = x.array((n, pixels))

    def blank() -> None:
        if (masked := target < 0).any():
            values[masked] = 0.0

    if b.graph.name != "train":
        b.host(op, blank, "where")


@binds(GlobalNorm)
def global_norm(b: Binder, op: GlobalNorm) -> None:
    arena = b.store.arena_of(op.gradients)
    values = arena.buffer.view(np.float32)
    norm = b.output(op.norm, Descriptor.of((1,))).array()

    def run() -> None:
        norm[0] = np.sqrt(np.dot(values, values))

    b.host(op, run, "dot")


@binds(ClipByNorm)
def clip_by_norm(b: Binder, op: ClipByNorm) -> None:
    arena = b.store.arena_of(op.gradients)
    flat = arena.flat(list(arena.spans))
    factor = Memory(Descriptor.of((1,)))
    scale, norm = factor.array(), b.home(op.norm).array()

    def choose() -> None:
        scale[0] = min(1.0, op.max_norm / max(float(norm[0]), 1e-30))

    b.host(op, choose, "minimum")
    multiply = (BINARY_MUL, flat.descriptor, factor.descriptor, flat.descriptor, None)
    memories = {SRC: flat, SRC_1: factor, DST: flat}
    b.primitive(op, PrimitiveDesc("binary", *multiply), memories)


@binds(SgdUpdate)
def sgd_update(b: Binder, op: SgdUpdate) -> None:
    """Over whole runs of the arenas: p = (1 - lr wd) p - lr g without momentum; with it
    v = m v + (g + wd p), then p = p - lr v, or with Nesterov p = (1 - lr wd) p - lr g - lr m v.
    """
    rates, step = b.data(op.rates), b.array(op.step)
    minus_lr, minus_lr_m, one = _scalar(), _scalar(), _scalar(1.0)
    runs = _runs(op)
    keeps = [_scalar() for _ in runs]
    factors = [(minus_lr.array(), 0.0, 1.0), (minus_lr_m.array(), 0.0, op.momentum)]
    factors += [(keep.array(), 1.0, decay) for keep, (decay, _) in zip(keeps, runs, strict=True)]

    def set_rate() -> None:
        lr = float(rates()[step[0]])
        for scalar, start, slope in factors:
            scalar[0] = start - lr * slope

    b.host(op, set_rate, "multiply", {"weight_decay": str([decay for decay, _ in runs])})
    for keep, (decay, members) in zip(keeps, runs, strict=True):
        parameters = [op.parameters[i] for i in members]
        p = b.store.arena_of(parameters).flat(parameters)
        gradients = [op.gradients[i] for i in members]
        g = b.store.arena_of(gradients).flat(gradients)
        if not op.momentum:
            _add(b, op, (p, keep), (g, minus_lr), p)
            continue
        buffers = [op.buffers[i] for i in members]
        v = b.store.arena_of(buffers).flat(buffers)
        if decay:
            _add(b, op, (p, _scalar(decay)), (g, one), v, accumulate=op.momentum)
        else:
            _add(b, op, (v, _scalar(op.momentum)), (g, one), v)
        if op.nesterov:
            _add(b, op, (p, keep), (g, minus_lr), p)
            _add(b, op, (p, one), (v, minus_lr_m), p)
        else:
            _add(b, op, (p, one), (v, minus_lr), p)


def update_order(op: SgdUpdate) -> list[int]:
    """The parameters' order in the arena: neighbours share their weight decay."""
    return [i for _, members in _runs(op) for i in members]


def _runs(op: SgdUpdate) -> list[tuple[float, list[int]]]:
    order = sorted(range(len(op.parameters)), key=lambda i: -op.weight_decay[i])
    grouped = groupby(order, key=lambda i: op.weight_decay[i])
    return [(decay, list(members)) for decay, members in grouped]


def _scalar(value: float = 0.0) -> Memory:
    memory = Memory(Descriptor.of((1,)))
    memory.array()[0] = value
    return memory


def _add(
    b: Binder,
    op: Op,
    left: tuple[Memory, Memory],
    right: tuple[Memory, Memory],
    target: Memory,
    accumulate: float | None = None,
) -> None:
    """target = left * scale + right * scale (+ accumulate * target), one pass over memory."""
    attributes = Attributes(scales=(SRC, SRC_1), accumulate=accumulate)
    first, second = left[0], right[0]
    arguments = (
        BINARY_ADD,
        first.descriptor,
        second.descriptor,
        target.descriptor,
        attributes,
    )
    memories = {
        SRC: first,
        SRC_1: second,
        DST: target,
        ATTR_SCALES | SRC: left[1],
        ATTR_SCALES | SRC_1: right[1],
    }
    details = {} if accumulate is None else {"post_op": f"sum {accumulate}"}
    b.primitive(op, PrimitiveDesc("binary", *arguments), memories, details)


@binds(Advance)
def advance(b: Binder, op: Advance) -> None:
    step = b.array(op.step)

    def run() -> None:
        step[0] += 1

    b.host(op, run, "add")
