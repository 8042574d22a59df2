"""The two ends of a step: gathering its batch, updating the parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...common.errors import DatasetError
from ...graph.graph import Tensor
from ...graph.ops import Advance, ClipByNorm, GatherBatch, GlobalNorm
from .arenas import flats, stretches
from .bind import Binder, binds
from .constants import BINARY, ELTWISE_LINEAR, FORWARD_INFERENCE
from .memory import Descriptor, Memory
from .primitive import Attributes, PrimitiveDesc, reorder_desc
from .updates import multiply


@binds(GatherBatch)
def gather_batch(b: Binder, op: GatherBatch) -> None:
    """NumPy copies the batch's pictures as bytes; oneDNN turns them to floats and scales them."""
    n = op.x.shape[0]
    pixels = op.x.size // n
    raw = b.scratch(Descriptor.of(op.x.shape, "plain", "uint8"))
    picked = raw.array((n, pixels), np.uint8)
    images, rows = b.data(op.images), rows_of_step(b, op)

    def gather() -> None:
        source = images()
        chosen = rows()
        source.reshape(len(source), pixels).take(chosen, axis=0, out=picked, mode="clip")

    b.host(op, gather, "take", {"pictures": f"u8 {n}x{pixels}"})
    scale_pixels(b, op, raw)


def rows_of_step(b: Binder, op: GatherBatch) -> Callable[[], NDArray[np.int32]]:
    """A function that returns the samples of this step, -1 for none, and writes their labels."""
    n = op.x.shape[0]
    target, step = b.array(op.target), b.array(op.step)
    images, labels, order = b.data(op.images), b.data(op.labels), b.data(op.order)

    def rows() -> NDArray[np.int32]:
        every = order()
        first = n * (int(step[0]) % (len(every) // n))
        chosen = every[first : first + n]
        count = len(images())
        if count == 0 or int(chosen.max()) >= count:
            raise DatasetError(
                f"sample {int(chosen.max())} was requested, but '{op.images.name}' has {count}"
            )
        labels().take(chosen, out=target, mode="clip")
        if int(chosen.min()) < 0:
            target[chosen < 0] = -1
        return chosen

    return rows


def scale_pixels(b: Binder, op: GatherBatch, raw: Memory | None) -> None:
    """x = pixels * scale + shift, 0 for a missing sample; raw: uint8; None: x has them."""
    n, channels = op.x.shape[:2]
    x = b.output(op.x)
    target = b.array(op.target)
    if raw is not None:
        b.primitive(op, reorder_desc(raw.descriptor, x.descriptor), {"src": raw, "dst": x})
    if len(set(op.scale)) == len(set(op.shift)) == 1:
        linear = (FORWARD_INFERENCE, ELTWISE_LINEAR, x.descriptor, x.descriptor)
        desc = PrimitiveDesc("eltwise_forward", *linear, op.scale[0], op.shift[0], None)
        b.primitive(op, desc, {"src": x, "dst": x}, {"alpha": op.scale[0], "beta": op.shift[0]})
    else:
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
        if (masked := target < 0).any():
            values[masked] = 0.0

    if not b.graph.training:
        b.host(op, blank, "where")


@binds(GlobalNorm)
def global_norm(b: Binder, op: GlobalNorm) -> None:
    values = [memory.array() for memory in _flats(b, op.gradients)]
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
    for part in _flats(b, op.gradients):
        multiply(b, op, part, factor)


def _flats(b: Binder, gradients: Sequence[Tensor]) -> list[Memory]:
    """The stretches of the arena that gradients lie in."""
    return [flats(b.store, members, gradients)[0] for members in stretches(b.store, gradients)]


@binds(Advance)
def advance(b: Binder, op: Advance) -> None:
    step = b.array(op.step)

    def run() -> None:
        step[0] += 1

    b.host(op, run, "add")
